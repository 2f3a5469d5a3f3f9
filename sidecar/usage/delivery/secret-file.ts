import { FileProblem, readText } from '../../lib/followed-file.js';

/** What messages call the file. */
const WHAT = 'delivery.secretFile';

/** No bearer secret is longer; a longer file was named by mistake. */
const MAX_SECRET_BYTES = 4096;

/** RFC 6750's b68token, which is also all that a header may carry. */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;

/** The secret in a file: its text without the space around it. Rejects with a {@link FileProblem}, which never quotes it. */
export async function readSecret(file: string): Promise<string> {
  const secret = (await readText(WHAT, file, MAX_SECRET_BYTES))?.trim();
  if (secret === undefined) throw new FileProblem(WHAT, 'does not exist', file);
  if (!TOKEN.test(secret)) throw new FileProblem(WHAT, 'must hold one bearer token and nothing else', file);
  return secret;
}
