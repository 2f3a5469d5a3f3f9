// Vectors and rankings of the clients that have a call for them. RA_EMBED and RA_RANK: the models.
import assert from 'node:assert/strict';
import { env } from 'node:process';
import { OpenAIEmbeddings } from '@langchain/openai';
import { OpenAIEmbedding } from '@llamaindex/openai';
import { createCohere } from '@ai-sdk/cohere';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embed, embedMany, rerank } from 'ai';
import { CohereClient, CohereError } from 'cohere-ai';
import OpenAI5 from 'openai-5';
import OpenAI6 from 'openai-6';
import OpenAI7 from 'openai';

const TEXTS = ['the rain in the north', 'a', 'the rain in the north'];
const QUERY = 'the rain';

export default ({ base, key }) => {
  const model = env.RA_EMBED;
  const holds = (vectors) => {
    assert.equal(vectors.length, TEXTS.length);
    for (const vector of vectors) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-5);
    const cosine = vectors[0].reduce((sum, value, i) => sum + value * vectors[2][i], 0);
    assert.ok(cosine > 0.9999);
  };
  const rank = env.RA_RANK;
  /** Scores by index, the best one first. */
  const ranks = (ranked) => {
    assert.equal(ranked.length, TEXTS.length);
    for (const [i, { score }] of ranked.entries()) assert.ok(i === 0 || score <= ranked[i - 1].score);
    const of = (index) => ranked.find((each) => each.index === index)?.score;
    assert.ok(Math.abs(of(0) - of(2)) < 1e-3, 'equal documents');
  };
  /** It asks for base64 unless told otherwise, and decodes it. */
  const openai = (OpenAI) => async () => {
    const client = new OpenAI({ apiKey: key, baseURL: base, maxRetries: 0 });
    const { data, usage } = await client.embeddings.create({ model, input: TEXTS });
    holds(data.map(({ embedding }) => embedding));
    assert.ok(usage.prompt_tokens > 3);
    const plain = await client.embeddings.create({ model, input: TEXTS[0], encoding_format: 'float' });
    assert.ok(Math.abs(plain.data[0].embedding[0] - data[0].embedding[0]) < 1e-3);
    await assert.rejects(client.embeddings.create({ model, input: 'a', dimensions: 3 }), OpenAI.BadRequestError);
  };
  return {
    'openai-5': openai(OpenAI5),
    'openai-6': openai(OpenAI6),
    'openai-7': openai(OpenAI7),
    async langchain() {
      const made = new OpenAIEmbeddings({ model, apiKey: key, maxRetries: 0, configuration: { baseURL: base } });
      holds(await made.embedDocuments(TEXTS));
      assert.ok((await made.embedQuery('a')).length > 1);
    },
    async llamaindex() {
      const made = new OpenAIEmbedding({ model, apiKey: key, baseURL: base, maxRetries: 0 });
      holds(await made.getTextEmbeddings(TEXTS));
    },
    async ai() {
      const made = createOpenAICompatible({ name: 'ra', baseURL: base, apiKey: key }).embeddingModel(model);
      const { embeddings, usage } = await embedMany({ model: made, values: TEXTS, maxRetries: 0 });
      holds(embeddings);
      assert.ok(usage.tokens > 3);
      assert.ok((await embed({ model: made, value: 'a', maxRetries: 0 })).embedding.length > 1);
    },
    async cohere() {
      const client = new CohereClient({ token: key, environment: new URL(base).origin, maxRetries: 0 });
      const asked = { model: rank, query: QUERY, documents: TEXTS };
      const { results } = await client.rerank(asked);
      ranks(results.map(({ index, relevanceScore: score }) => ({ index, score })));
      const best = await client.rerank({
        ...asked,
        documents: TEXTS.map((text) => ({ text })),
        topN: 1,
        returnDocuments: true,
      });
      assert.deepEqual(best.results, [{ ...results[0], document: { text: TEXTS[results[0].index] } }]);
      await assert.rejects(
        client.rerank({ ...asked, model }),
        (error) => error instanceof CohereError && error.statusCode === 400,
      );
    },
    async 'ai-cohere'() {
      const made = createCohere({ baseURL: base, apiKey: key }).reranking(rank);
      const { ranking, rerankedDocuments } = await rerank({
        model: made,
        query: QUERY,
        documents: TEXTS,
        maxRetries: 0,
      });
      ranks(ranking.map(({ originalIndex: index, score }) => ({ index, score })));
      assert.equal(rerankedDocuments[0], TEXTS[ranking[0].originalIndex]);
      const [only] = (await rerank({ model: made, query: QUERY, documents: TEXTS, topN: 1, maxRetries: 0 })).ranking;
      assert.equal(only.originalIndex, ranking[0].originalIndex);
    },
  };
};
