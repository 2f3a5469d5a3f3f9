"""The flow of files and batches as OpenAI's documentation has it, by its own client for Python, unmodified.

RA_BASE, RA_KEY, RA_OTHER_KEY, RA_MODEL: the sidecar's base URL, a key, one of another account, and a model. Prints JSON of what was seen.
"""
import io
import json
import os
import time

from openai import BadRequestError, NotFoundError, OpenAI, __version__

LINES = 20
model = os.environ["RA_MODEL"]
client = OpenAI(base_url=os.environ["RA_BASE"], api_key=os.environ["RA_KEY"], max_retries=0)
stranger = OpenAI(base_url=os.environ["RA_BASE"], api_key=os.environ["RA_OTHER_KEY"], max_retries=0)


def lines(count, **body):
    """An input file of `count` chats, in memory, with a name."""
    requests = [
        {
            "custom_id": f"request-{i}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1 + i % 5, **body},
        }
        for i in range(count)
    ]
    file = io.BytesIO("".join(json.dumps(request) + "\n" for request in requests).encode())
    file.name = "requests.jsonl"
    return file


def ended(batch):
    """The batch once it has ended."""
    while batch.status in ("validating", "in_progress", "finalizing", "cancelling"):
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def begin(file):
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"for": "a test"}
    )


def refused(error, call, *given):
    """Whether a call is refused with this error of the client."""
    try:
        call(*given)
    except error:
        return True
    return False


file = client.files.create(
    file=lines(LINES), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
)
batch = ended(begin(file))
answers = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
with client.files.with_streaming_response.content(batch.output_file_id) as streamed:
    bytes_streamed = sum(len(part) for part in streamed.iter_bytes())

bad = ended(begin(client.files.create(file=lines(2, stream=True), purpose="batch")))

long_file = client.files.create(file=lines(3000), purpose="batch")
long = begin(long_file)
held = refused(BadRequestError, client.files.delete, long_file.id)
cancelled = ended(client.batches.cancel(long.id))

print(
    json.dumps(
        {
            "version": __version__,
            "file": [file.filename, file.purpose, file.expires_at - file.created_at],
            "batch": [batch.status, batch.request_counts.completed, batch.request_counts.failed, batch.metadata],
            "answers": sorted(int(answer["custom_id"].split("-")[1]) for answer in answers),
            "texts": all(answer["response"]["body"]["choices"][0]["message"]["role"] == "assistant" for answer in answers),
            "usage": batch.usage.output_tokens
            == sum(answer["response"]["body"]["usage"]["completion_tokens"] for answer in answers),
            "streamed": bytes_streamed == client.files.retrieve(batch.output_file_id).bytes,
            "failed": [bad.status, bad.errors.data[0].line, bad.errors.data[0].param],
            "held": held,
            "cancelled": cancelled.status,
            "listed": {each.id for each in client.batches.list(limit=2)} == {batch.id, bad.id, long.id},
            "files": file.id in [each.id for each in client.files.list(purpose="batch", limit=1)],
            "stranger": [
                refused(NotFoundError, stranger.files.retrieve, file.id),
                refused(NotFoundError, stranger.files.content, batch.output_file_id),
                refused(NotFoundError, stranger.batches.retrieve, batch.id),
                len(list(stranger.files.list())) + len(list(stranger.batches.list())),
            ],
            "deleted": client.files.delete(file.id).deleted,
            "gone": refused(NotFoundError, client.files.content, file.id),
        }
    )
)
