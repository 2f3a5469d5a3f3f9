/**
 * The seedling's chat template, and how it is put into a file that exists. It is the tests' template, except that a tool is written
 * with only the keywords of JSON Schema that the corpus has (corpus/tools.ts): `type`, `properties`, `required`, and an `enum` of
 * texts. With any other keyword in the prompt (`$schema`, `additionalProperties: false`, a parameter's `description`) the model says
 * that it has no tool, or calls it with words of the schema. What is left out of the prompt still constrains the call: the grammar is
 * compiled from the whole schema.
 */
import { readFileSync } from 'node:fs';
import { readHead } from '../../engine/llama/gguf-head.js';
import { readGgufFileInfo } from '../../engine/llama/package.js';
import { CHAT_TEMPLATE } from '../models/chat-template.js';
import { aligned } from '../models/gguf-format.js';

/** How the tests' template writes a tool. */
const WHOLE_TOOL = '(tool | tojson)';
const TRAINED_TOOL = 'trained_tool(tool.function if tool.function is mapping else tool)';

/**
 * `trained_schema` takes the first alternative of a union other than null, and the first type of a list; a number is written as an
 * integer, since the corpus has no other numbers. A schema that states no type is an object if it has properties, else a text.
 * Each property is written as required: in the corpus all are. The properties of objects in more than 8 others are left out.
 */
const MACROS = readFileSync(new URL('../../../bench/seedling/trained-tool.jinja', import.meta.url), 'utf8');

export const SEEDLING_TEMPLATE = MACROS + CHAT_TEMPLATE.replace(WHOLE_TOOL, TRAINED_TOOL);

const TEMPLATE_KEY = 'tokenizer.chat_template';
/** The code of a text among GGUF's types of values. */
const TEXT_CODE = 8;

/**
 * The bytes of a GGUF file whose template is `template` and in which all else is as in `path`: the weights and the rest of the metadata
 * are copied as bytes. `bytes`: the content of `path`. Throws if the file is damaged or has no template.
 */
export async function withTemplate(path: string, bytes: Buffer, template: string): Promise<Buffer> {
  const head = readHead({
    size: bytes.length,
    read: (offset, length) => bytes.subarray(offset, offset + length),
  });
  if (head.kind === 'bad') throw new Error(`${path} ${head.problem}`);
  const info = await readGgufFileInfo(path, { sourceType: 'filesystem', logWarnings: false });
  const key = Buffer.concat([uint64(TEMPLATE_KEY.length), Buffer.from(TEMPLATE_KEY), uint32(TEXT_CODE)]);
  const at = bytes.subarray(0, head.metadataBytes).indexOf(key);
  if (at < 0) throw new Error(`${path} has no chat template`);
  const lengthAt = at + key.length;
  const textAt = lengthAt + 8;
  const after = textAt + Number(bytes.readBigUInt64LE(lengthAt));
  const descriptionsEnd = head.metadataBytes + (info.totalTensorInfoSize ?? 0);
  const text = Buffer.from(template, 'utf8');
  const newHead = Buffer.concat([
    bytes.subarray(0, lengthAt),
    uint64(text.length),
    text,
    bytes.subarray(after, descriptionsEnd),
  ]);
  const padding = Buffer.alloc(aligned(newHead.length) - newHead.length);
  return Buffer.concat([newHead, padding, bytes.subarray(aligned(descriptionsEnd))]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function uint64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}
