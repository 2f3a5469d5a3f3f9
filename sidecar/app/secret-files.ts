/** Files that contain keys or secrets: which ones a configuration names, and whether other users of the machine have them. */
import { stat } from 'node:fs/promises';
import type { Config } from '../config/config.js';

/** Permission of users other than the owner and the group to read or to write. */
const OTHERS = 0o006;

/** A secret file that every user of this machine may read or write. */
export interface OpenFile {
  readonly file: string;
  /** For example `other users can read it (mode 0644)`. */
  readonly problem: string;
}

/** The configured files with secrets that other users may read or write. A file that does not exist is none of them. */
export async function filesOpenToOthers(config: Config): Promise<OpenFile[]> {
  const found = await Promise.all(secretFiles(config).map(async (file) => ({ file, mode: await modeOf(file) })));
  return found.flatMap(({ file, mode }) => {
    if ((mode & OTHERS) === 0) return [];
    const may = [...((mode & 0o004) === 0 ? [] : ['read']), ...((mode & 0o002) === 0 ? [] : ['write'])];
    return [{ file, problem: `other users can ${may.join(' and ')} it (mode 0${(mode & 0o777).toString(8)})` }];
  });
}

function secretFiles({ access, keys, ...config }: Config): readonly string[] {
  const { nats, secretFile } = config.delivery;
  const named = [
    access.mode === 'keys' ? keys.file : undefined,
    config.tls.keyFile,
    config.operators.secretFile,
    config.gateway.secretFile,
    config.authorizer.secretFile,
    config.fleet.scrapeSecretFile,
    config.telemetry.otlp.headersFile,
    secretFile,
    nats.secretFile,
    nats.keyFile,
    ...config.models.map(({ engine }) => engine.secretFile),
  ];
  return [...new Set(named.filter((file) => file !== undefined))];
}

/** 0 if it cannot be looked at: its reader reports that. */
async function modeOf(file: string): Promise<number> {
  return await stat(file).then(
    ({ mode }) => mode,
    () => 0,
  );
}
