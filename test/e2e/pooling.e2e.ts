/** Vectors and scores beside llama-server's, of the same commit and file, and vectors that it computes for the sidecar. Needs `make peers`. */
import t from 'tap';
import { LlamaServer } from '../../bench/support/peers.js';
import { POOLING_CONTEXT, POOLING_MODELS, poolingKind, poolingModel } from '../support/pooling-models.js';
import { Sidecar } from '../support/sidecar.js';

t.setTimeout(300_000);

const TEXTS = [
  'the rain in the north',
  'a',
  'The rain, in the NORTH.  And more of it',
  'what would they say '.repeat(60),
];

const files = new Map<string, string>();
for (const name of POOLING_MODELS) files.set(name, await poolingModel(name));
const external = await LlamaServer.start(files.get('mean') ?? '', {
  threads: 1,
  slots: 2,
  contextPerSlot: POOLING_CONTEXT,
  more: ['--embedding', '-ub', String(POOLING_CONTEXT)],
});
t.teardown(() => external.close());
const ranker = await LlamaServer.start(files.get('rank') ?? '', {
  threads: 1,
  slots: 2,
  contextPerSlot: POOLING_CONTEXT,
  more: ['--reranking', '-ub', String(POOLING_CONTEXT)],
});
t.teardown(() => ranker.close());
const sidecar = await Sidecar.start(t, {
  config: {
    models: [
      ...POOLING_MODELS.map((id) => ({
        id,
        kind: poolingKind(id),
        file: files.get(id),
        seats: 8,
        contextPerSeat: POOLING_CONTEXT,
        threads: 1,
      })),
      {
        id: 'external',
        kind: 'embedding',
        file: files.get('mean'),
        seats: 8,
        contextPerSeat: POOLING_CONTEXT,
        engine: { kind: 'llama-server', url: `http://127.0.0.1:${external.port}` },
      },
      {
        id: 'external-rank',
        kind: 'rerank',
        file: files.get('rank'),
        seats: 8,
        contextPerSeat: POOLING_CONTEXT,
        engine: { kind: 'llama-server', url: `http://127.0.0.1:${ranker.port}` },
      },
    ],
  },
});

interface Vectors {
  readonly data: readonly { readonly index: number; readonly embedding: readonly number[] }[];
  readonly usage: { readonly prompt_tokens: number };
}

interface Ranking {
  readonly results: readonly { readonly index: number; readonly relevance_score: number }[];
}

async function posted<T>(response: Promise<Response>): Promise<T> {
  const found = await response;
  if (!found.ok) throw new Error(await found.text());
  return (await found.json()) as T;
}

function cosine(a: readonly number[], b: readonly number[]): number {
  const dot = a.reduce((sum, value, i) => sum + value * (b[i] ?? NaN), 0);
  return dot / Math.hypot(...a) / Math.hypot(...b);
}

for (const name of POOLING_MODELS) {
  t.test(name, async (t) => {
    const server = await LlamaServer.start(files.get(name) ?? '', {
      threads: 1,
      slots: 1,
      contextPerSlot: POOLING_CONTEXT,
      more: [poolingKind(name) === 'rerank' ? '--reranking' : '--embedding', '-ub', String(POOLING_CONTEXT)],
    });
    const theirs = (path: string, body: object): Promise<Response> =>
      fetch(`http://127.0.0.1:${server.port}${path}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      });
    try {
      if (poolingKind(name) === 'rerank') {
        const body = { model: name, query: 'the rain', documents: TEXTS };
        const own = await posted<Ranking>(sidecar.post('/rerank', body));
        const other = await posted<Ranking>(theirs('/v1/rerank', body));
        for (const { index, relevance_score: score } of own.results) {
          const found = other.results.find((each) => each.index === index)?.relevance_score ?? NaN;
          t.ok(Math.abs(score - found) < 1e-3, `${score} and ${found}`);
        }
        return;
      }
      for (const text of TEXTS) {
        const body = { model: name, input: text };
        const [own, other] = [
          await posted<Vectors>(sidecar.post('/embeddings', body)),
          await posted<Vectors>(theirs('/v1/embeddings', body)),
        ];
        t.equal(own.usage.prompt_tokens, other.usage.prompt_tokens, 'the same tokens');
        const found = cosine(own.data[0]?.embedding ?? [], other.data[0]?.embedding ?? []);
        t.ok(found > 0.9999, `cosine ${found}`);
      }
    } finally {
      await server.close();
    }
  });
}

t.test('vectors that llama-server computes for the sidecar', async (t) => {
  const input = Array.from({ length: 300 }, (_, i) => TEXTS[i % TEXTS.length] ?? '');
  const [own, other] = [
    await posted<Vectors>(sidecar.post('/embeddings', { model: 'mean', input })),
    await posted<Vectors>(sidecar.post('/embeddings', { model: 'external', input })),
  ];
  t.equal(other.data.length, input.length);
  t.equal(own.usage.prompt_tokens, other.usage.prompt_tokens, 'the same tokens');
  const cosines = own.data.map(({ embedding }, i) => cosine(embedding, other.data[i]?.embedding ?? []));
  t.ok(Math.min(...cosines) > 0.9999, `the lowest cosine is ${Math.min(...cosines)}`);
});

t.test('scores that llama-server computes for the sidecar', async (t) => {
  const documents = Array.from({ length: 200 }, (_, i) => `${TEXTS[i % TEXTS.length] ?? ''} ${i}`);
  const [own, other] = [
    await posted<Ranking>(sidecar.post('/rerank', { model: 'rank', query: 'the rain', documents })),
    await posted<Ranking>(sidecar.post('/rerank', { model: 'external-rank', query: 'the rain', documents })),
  ];
  t.equal(other.results.length, documents.length);
  for (const { index, relevance_score: score } of own.results) {
    const found = other.results.find((each) => each.index === index)?.relevance_score ?? NaN;
    t.ok(Math.abs(score - found) < 1e-3, `${score} and ${found}`);
  }
});
