import { open } from 'node:fs/promises';

/** No bearer secret is longer; a longer file was named by mistake. */
const MAX_SECRET_BYTES = 4096;

/** RFC 6750's b68token, which is also all that a header may carry. */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;

/** The file cannot be used. The message names the file and never what is in it. */
export class SecretFileError extends Error {
  override readonly name = 'SecretFileError';
}

/** The secret in a file: its text without the space around it. Rejects with a {@link SecretFileError}. */
export async function readSecret(file: string): Promise<string> {
  let text: string;
  try {
    const handle = await open(file, 'r');
    try {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(MAX_SECRET_BYTES + 1), 0, MAX_SECRET_BYTES + 1, 0);
      text = buffer.toString('latin1', 0, bytesRead);
    } finally {
      await handle.close();
    }
  } catch (error) {
    const { code = 'unknown' } = error as NodeJS.ErrnoException;
    throw new SecretFileError(`delivery.secretFile cannot be read: ${code} (file ${file})`);
  }
  const secret = text.trim();
  if (text.length > MAX_SECRET_BYTES || !TOKEN.test(secret)) {
    throw new SecretFileError(`delivery.secretFile must hold one bearer token and nothing else (file ${file})`);
  }
  return secret;
}
