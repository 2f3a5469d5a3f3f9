/** Files and batches of a sidecar in a process of its own, as tests use them. */
import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import type OpenAI from 'openai';
import { untilNextLook } from './processes.js';
import { CHAT, type Sidecar } from './sidecar.js';

/** The section `batch` of a sidecar that stores on the disk, with the operator's key in `dir`. */
export function storeOnDisk(dir: string): { readonly store: 'disk'; readonly keyFile: string } {
  const keyFile = join(dir, 'batch.key');
  writeFileSync(keyFile, 'k'.repeat(40), { flag: 'w' });
  return { store: 'disk', keyFile };
}

/** A line of an input file: a chat whose reply has so many tokens. */
export function chatLine(customId: string, tokens: number, more: object = {}): string {
  const body = { model: CHAT, max_tokens: tokens, messages: [{ role: 'user', content: `line ${customId}` }], ...more };
  return JSON.stringify({ custom_id: customId, method: 'POST', url: '/v1/chat/completions', body });
}

/** Whether a batch of this status has ended. */
export function isOver(status: OpenAI.Batch['status']): boolean {
  return !['validating', 'in_progress', 'finalizing', 'cancelling'].includes(status);
}

/** Resolves once a batch has ended, with its last state. */
export async function ended(client: OpenAI, id: string): Promise<OpenAI.Batch> {
  for (let looks = 0; ; looks += 1) {
    const batch = await client.batches.retrieve(id);
    if (isOver(batch.status)) return batch;
    await untilNextLook(looks);
  }
}

/** A line of an answers' file. */
export interface AnswerLine {
  readonly id: string;
  readonly custom_id: string;
  readonly response: { readonly status_code: number; readonly body: OpenAI.ChatCompletion } | null;
  readonly error: { readonly code: string } | null;
}

export async function answersIn(client: OpenAI, file: string | null | undefined): Promise<AnswerLine[]> {
  if (file === null || file === undefined) return [];
  const text = await (await client.files.content(file)).text();
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as AnswerLine]));
}

const BOUNDARY = 'boundary';

export const MIB = 1 << 20;

/** Sends a form with `mib` MiB of the same text, a MiB each `sentMs`; resolves with the file's id. */
export function upload({ base, key }: Pick<Sidecar, 'base' | 'key'>, mib: number, sentMs: number): Promise<string> {
  const head = `--${BOUNDARY}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--${BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="in"\r\ncontent-type: application/octet-stream\r\n\r\n`;
  const headers = { authorization: `Bearer ${key}`, 'content-type': `multipart/form-data; boundary=${BOUNDARY}` };
  return new Promise((resolve, reject) => {
    const sent = request(`${base}/files`, { method: 'POST', headers }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (text: string) => (body += text));
      response.once('end', () => {
        if (response.statusCode === 200) resolve((JSON.parse(body) as { id: string }).id);
        else reject(new Error(body));
      });
    });
    sent.once('error', reject).write(head);
    const piece = Buffer.alloc(MIB, 'content ');
    const write = (left: number): void => {
      if (left === 0) sent.end(`\r\n--${BOUNDARY}--\r\n`);
      else if (!sent.destroyed) sent.write(piece, () => setTimeout(() => write(left - 1), sentMs));
    };
    write(mib);
  });
}
