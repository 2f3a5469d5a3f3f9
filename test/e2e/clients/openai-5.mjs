import OpenAI from 'openai-5';
import { makeParseableResponseFormat } from 'openai-5/lib/parser';
import { z } from 'zod';
import { openaiSteps } from './openai.mjs';

/** Its own helper reads only schemas of zod 3. */
const zodResponseFormat = (schema, name) =>
  makeParseableResponseFormat(
    { type: 'json_schema', json_schema: { name, strict: true, schema: z.toJSONSchema(schema) } },
    (content) => schema.parse(JSON.parse(content)),
  );

export default (given) => openaiSteps(OpenAI, { zodResponseFormat, z }, given);
