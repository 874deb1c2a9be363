"""`clients.py openai|langchain BASE_URL MODEL`: what an app does with its SDK, one JSON line a call. No proxy code.

Run by an interpreter that has the SDKs, see `clients.sh`. The last argument is the SDK's own business: nothing here
knows what stands behind the URL.
"""

import json
import sys
import time

QUESTION = "Tell me about the fox."
LIMIT = 64


def openai(base_url, model):
    from openai import OpenAI

    client = OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120)
    asked = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": LIMIT}

    def plain():
        return client.chat.completions.create(**asked).choices[0].message.content

    def stream():
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(**asked, **options))
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    def sampling():
        return client.chat.completions.create(**asked, stop=["###"], user="u1", n=1).choices[0].message.content

    def tutorial():
        extra = {"num_denoising_steps": 4, "parallel_tokens": 64}
        return client.chat.completions.create(**asked, temperature=0, extra_body=extra).choices[0].message.content

    def parts():
        message = {"role": "user", "content": [{"type": "text", "text": QUESTION}]}
        return client.chat.completions.create(**asked | {"messages": [message]}).choices[0].message.content

    def newer():
        changed = {key: value for key, value in asked.items() if key != "max_tokens"}
        return client.chat.completions.create(**changed, max_completion_tokens=LIMIT).choices[0].message.content

    return plain, stream, sampling, tutorial, parts, newer


def langchain(base_url, model):
    from langchain_openai import ChatOpenAI

    settings = {"base_url": base_url, "api_key": "none", "model": model, "max_retries": 0, "timeout": 120}
    chat = ChatOpenAI(**settings, max_tokens=LIMIT)

    def plain():
        return chat.invoke(QUESTION).content

    def stream():
        return "".join(chunk.content for chunk in chat.stream(QUESTION))

    def stream_usage():
        return "".join(chunk.content for chunk in chat.stream(QUESTION, stream_usage=True))

    def tutorial():
        extra = {"num_denoising_steps": 4, "parallel_tokens": 64}
        return ChatOpenAI(**settings, max_tokens=LIMIT, extra_body=extra).invoke(QUESTION).content

    return plain, stream, stream_usage, tutorial


def main(sdk, base_url, model):
    for call in {"openai": openai, "langchain": langchain}[sdk](base_url, model):
        start = time.perf_counter()
        try:
            said = {"text": call()}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"call": call.__name__, "seconds": time.perf_counter() - start} | said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
