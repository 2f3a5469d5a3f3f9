import assert from 'node:assert/strict';
import OpenAI from 'openai-6';
import { zodResponseFormat } from 'openai-6/helpers/zod';
import { z } from 'zod';
import { openaiSteps } from './openai.mjs';

export default (given) => ({
  ...openaiSteps(OpenAI, { zodResponseFormat, z }, given),
  /** An engine that takes 25 s to start: the client's two retries, after the times that it is told, outlast it. */
  async cold() {
    const { base, key, model, control } = given;
    assert.equal((await fetch(`${control}/cold`)).status, 200);
    const client = new OpenAI({ apiKey: key, baseURL: base });
    const { choices } = await client.chat.completions.create({
      model,
      messages: [{ role: 'user', content: 'Hello' }],
      max_completion_tokens: 8,
    });
    assert.ok(choices[0].finish_reason);
  },
});
