"""What watches production traffic: Grafana dashboards, their provisioning, Prometheus' scrape configuration and rules.

The dashboards are generated (`python -m grafana.dashboards`) from the catalogue of metrics, and checked in.
"""
