#!/bin/sh
# What some tests need from the system, where apt is at hand and we may use it. Without these packages
# the tests that need them are skipped and say so; in CI they must not skip.
set -u
missing=""
command -v prometheus >/dev/null 2>&1 || missing="$missing prometheus"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v nginx >/dev/null 2>&1 || missing="$missing nginx-light"
[ -z "$missing" ] && exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
  echo "not installed, so some tests will be skipped:$missing"
fi
exit 0
