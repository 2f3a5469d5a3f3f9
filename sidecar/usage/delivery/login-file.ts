import { FileProblem, readText } from '../../lib/checked-file.js';

/** A longer file was probably named by mistake. Certificate files include the chain. */
const MAX_FILE_BYTES = 1024 * 1024;

/** The TLS files and the content of each, PEM. */
export interface TlsFiles {
  readonly caFile?: string;
  readonly certFile?: string;
  readonly keyFile?: string;
}
export interface TlsTexts {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** The text of a file that must exist. Rejects with a {@link FileProblem}, which never quotes it. */
export async function readNamed(what: string, file: string): Promise<string> {
  const text = await readText(what, file, MAX_FILE_BYTES);
  if (text === undefined) throw new FileProblem(what, 'does not exist', file);
  return text;
}

/** Reads the configured files. Rejects with a {@link FileProblem}. */
export async function readTls(what: string, { caFile, certFile, keyFile }: TlsFiles): Promise<TlsTexts> {
  const pem = async (name: string, file: string): Promise<string> => {
    const text = await readNamed(`${what}.${name}`, file);
    if (!text.includes('-----BEGIN ')) throw new FileProblem(`${what}.${name}`, 'must be PEM', file);
    return text;
  };
  return {
    ...(caFile !== undefined && { ca: await pem('caFile', caFile) }),
    ...(certFile !== undefined && { cert: await pem('certFile', certFile) }),
    ...(keyFile !== undefined && { key: await pem('keyFile', keyFile) }),
  };
}

/**
 * The name and the password in a file, one line `user:password`; the password may contain colons. Rejects with a {@link
 * FileProblem}.
 */
export async function readLogin(
  what: string,
  file: string,
): Promise<{ readonly user: string; readonly password: string }> {
  const { user, password } =
    /^(?<user>[^:\n]+):(?<password>[^\n]+)$/.exec((await readNamed(what, file)).trim())?.groups ?? {};
  if (user === undefined || password === undefined) {
    throw new FileProblem(what, 'must contain one line, user:password', file);
  }
  return { user, password };
}
