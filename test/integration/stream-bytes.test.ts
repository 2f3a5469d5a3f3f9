import { request as httpRequest } from 'node:http';
import t from 'tap';
import { chunksOf, complete, contentOf, refusalOf, type Chunk } from '../support/replies.js';
import { ELSEWHERE } from '../support/llama-servers.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';
import { sharedSidecar } from '../support/shared-sidecar.js';
import { CHAT } from '../support/sidecar.js';

const sidecar = await sharedSidecar();
const REQUEST = {
  model: CHAT,
  messages: [{ role: 'user', content: 'Hello' }],
  stream: true,
  stream_options: { include_usage: true },
  temperature: 0,
  max_tokens: 48,
};
const HEADERS = { Authorization: `Bearer ${sidecar.key}`, 'Content-Type': 'application/json', TE: 'trailers' };

const DURATION = '[0-9]+(?:\\.[0-9]{1,3})?';
const TIMING = new RegExp(`^authorize;dur=${DURATION}, ra-queue;dur=${DURATION}, ra-admit;dur=${DURATION}$`);
const TTFT = new RegExp(`^ra-ttft;dur=${DURATION}$`);
const DATE = /^[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT$/;

/** The variable parts of a stream; all else is fixed, byte by byte. */
interface Variables {
  readonly requestId: string;
  readonly serverTiming: string;
  readonly date: string;
  readonly endDate: string;
  readonly ttft: string;
  readonly first: Chunk;
  /** The model’s text as it came. */
  readonly pieces: readonly string[];
  readonly finishReason: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** The whole response by the contract, as one string of bytes (Latin-1). */
function expected(v: Variables): string {
  const { id, created, system_fingerprint: fingerprint } = v.first;
  const head =
    'HTTP/1.1 200 OK\r\n' +
    'Content-Type: text/event-stream; charset=utf-8\r\n' +
    'Cache-Control: no-cache\r\n' +
    'X-Accel-Buffering: no\r\n' +
    `Server-Timing: ${v.serverTiming}\r\n` +
    'Trailer: Server-Timing\r\n' +
    `x-request-id: ${v.requestId}\r\n` +
    'Access-Control-Expose-Headers: x-request-id, Server-Timing\r\n' +
    'Keep-Alive: timeout=7\r\n' +
    `Date: ${v.date}\r\n` +
    'Transfer-Encoding: chunked\r\n\r\n';
  const event = (data: string): string => {
    const text = `data: ${data}\n\n`;
    return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
  };
  const chunk = (choices: string, usage = ''): string =>
    event(
      `{"id":"${id}","object":"chat.completion.chunk","created":${created},"model":"${CHAT}",` +
        `"system_fingerprint":"${fingerprint}","choices":[${choices}]${usage}}`,
    );
  const choice = (delta: string, reason = 'null'): string => `{"index":0,"delta":{${delta}},"finish_reason":${reason}}`;
  const usage =
    `,"usage":{"prompt_tokens":${v.promptTokens},"completion_tokens":${v.completionTokens},` +
    `"total_tokens":${v.promptTokens + v.completionTokens},"prompt_tokens_details":{"cached_tokens":0}}`;
  const body = [
    chunk(choice('"role":"assistant","content":""')),
    ...v.pieces.map((piece) => chunk(choice(`"content":${JSON.stringify(piece)}`))),
    chunk(choice('', `"${v.finishReason}"`)),
    chunk('', usage),
    event('[DONE]'),
  ].join('');
  const trailer = `0\r\nServer-Timing: ${v.ttft}\r\nDate: ${v.endDate}\r\n`;
  return Buffer.from(`${head}${body}${trailer}\r\n`).toString('latin1');
}

function trailerOf(response: RawResponse, name: string): string {
  return response.trailers.find(([field]) => field === name)?.[1] ?? '';
}

t.test('a stream byte by byte, twice on one kept-alive connection', async (t) => {
  const whole = await complete(sidecar, 'Hello', { ...REQUEST, stream: false, stream_options: undefined });
  const [{ message, finish_reason: finishReason }] = whole.choices;
  t.match(message.content, /[^\x00-\x7f]/, 'the text has characters of more than one byte');
  const one = await complete(sidecar, 'Hello', { ...REQUEST, stream: false, stream_options: undefined, max_tokens: 1 });
  const firstText = one.choices[0].message.content;
  t.ok(firstText !== '' && firstText !== message.content);

  const connection = await RawConnection.open(sidecar.port);
  t.teardown(() => connection.close());
  const ids = new Set<string>();
  for (const requestId of ['first.of-two', 'second.of-two']) {
    connection.request(
      'POST',
      '/v1/chat/completions',
      { ...HEADERS, 'x-request-id': requestId },
      JSON.stringify(REQUEST),
    );
    const response = await connection.response();
    const serverTiming = response.field('Server-Timing') ?? '';
    const date = response.field('Date') ?? '';
    const endDate = trailerOf(response, 'Date');
    const ttft = trailerOf(response, 'Server-Timing');
    t.match(serverTiming, TIMING);
    t.match(date, DATE);
    t.match(endDate, DATE);
    t.match(ttft, TTFT);

    const chunks = chunksOf(response.body);
    const pieces = chunks.slice(1, -2).map((chunk) => contentOf([chunk]));
    t.equal(pieces.join(''), message.content, 'its text equals a whole reply’s');
    // A server elsewhere may have sent the second token before the engine process reads the first.
    const begin = ELSEWHERE ? pieces[0]?.slice(0, firstText.length) : pieces[0];
    t.equal(begin, firstText, 'the first token does not wait for the next');
    t.ok(pieces.length > 1 && !pieces.includes(''), 'the others in pieces, none of them empty');
    const first = chunks[0]!;
    t.match(first.id, /^chatcmpl-[0-9a-f-]{36}$/);
    t.ok(Math.abs(first.created - Date.now() / 1000) < 3600, 'seconds, not milliseconds');
    ids.add(first.id);
    t.equal(
      response.raw,
      expected({
        requestId,
        serverTiming,
        date,
        endDate,
        ttft,
        first,
        pieces,
        finishReason,
        promptTokens: whole.usage.prompt_tokens,
        completionTokens: whole.usage.completion_tokens,
      }),
    );
  }
  t.equal(ids.size, 2, 'each with its own id');
});

t.test("Node's http client reads the trailer, twice on one connection", async (t) => {
  const sockets = new Set<unknown>();
  for (let i = 0; i < 2; i++) {
    const { trailers, body } = await new Promise<{ trailers: NodeJS.Dict<string>; body: string }>((resolve, reject) => {
      const request = httpRequest(
        `${sidecar.base}/chat/completions`,
        { method: 'POST', headers: { ...HEADERS, Connection: 'keep-alive' } },
        (response) => {
          let body = '';
          response.setEncoding('utf8').on('data', (text: string) => (body += text));
          response.on('end', () => resolve({ trailers: response.trailers, body }));
          response.on('error', reject);
        },
      );
      request.on('socket', (socket) => sockets.add(socket));
      request.on('error', reject);
      request.end(JSON.stringify(REQUEST));
    });
    t.match(trailers['server-timing'], TTFT);
    t.not(contentOf(chunksOf(body)), '');
  }
  t.equal(sockets.size, 1);
});

t.test('fetch reads the stream', async (t) => {
  const response = await sidecar.post('/chat/completions', REQUEST);
  t.equal(response.status, 200);
  t.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8');
  t.equal(response.headers.get('trailer'), null, 'fetch asks for none');
  const chunks = chunksOf(await response.text());
  t.equal(chunks.at(-1)?.choices.length, 0, 'the usage chunk is the last');
  t.equal(chunks.at(-2)?.choices[0]?.finish_reason, 'length');
  t.same(chunks.at(-2)?.choices[0]?.delta, {});
});

t.test('without include_usage there is no usage chunk', async (t) => {
  const response = await sidecar.post('/chat/completions', { ...REQUEST, stream_options: { include_usage: false } });
  const chunks = chunksOf(await response.text());
  t.ok(chunks.every(({ choices, usage }) => choices.length === 1 && usage === undefined));
});

t.test('the choices of a stream each have their role, text and finish', async (t) => {
  const response = await sidecar.post('/chat/completions', { ...REQUEST, temperature: 1, seed: 5, n: 3 });
  const chunks = chunksOf(await response.text());
  const usage = chunks.pop()?.usage;
  for (const index of [0, 1, 2]) {
    const own = chunks.filter(({ choices }) => choices[0]?.index === index);
    t.same(own[0]?.choices[0]?.delta, { role: 'assistant', content: '' });
    t.ok(own.slice(0, -1).every(({ choices }) => choices[0]?.finish_reason === null));
    t.match(own.at(-1)?.choices[0]?.finish_reason, /^(stop|length)$/);
    t.not(contentOf(own), '');
  }
  t.ok(usage && usage.completion_tokens > 3);
});

t.test('an error before the first token is an ordinary response, on the same connection', async (t) => {
  const connection = await RawConnection.open(sidecar.port);
  t.teardown(() => connection.close());
  const body = JSON.stringify({ ...REQUEST, max_tokens: 100_000 });
  connection.request('POST', '/v1/chat/completions', HEADERS, body);
  const refused = await connection.response();
  t.equal(refused.status, 400);
  t.equal(refused.field('Content-Type'), 'application/json');
  t.equal(refused.field('Trailer'), undefined);
  t.match(await refusalOf(new Response(refused.body, { status: refused.status })), { code: 'bad_request' });
  connection.request('POST', '/v1/chat/completions', HEADERS, JSON.stringify(REQUEST));
  t.equal((await connection.response()).status, 200);
});
