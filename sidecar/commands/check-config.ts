import { loadConfig, type Config, type LoadedConfig } from '../config/config.js';
import { EXIT, parsed, type Output } from './command.js';
import { COMMANDS } from './command-table.js';

/**
 * `ra-sidecar check-config [FILE]`: prints the effective configuration, or all its errors. Resolves with the exit code.
 */
export function checkConfig(args: readonly string[], { out, err: say }: Output): Promise<number> {
  const { values, operands } = parsed(COMMANDS['check-config'], args);
  const [file] = operands;
  const loaded = file === undefined ? loadConfig() : loadConfig(undefined, file);
  if (loaded.kind === 'invalid' || loaded.unservable !== undefined) {
    const lines = loaded.kind === 'invalid' ? loaded.lines : [loaded.unservable ?? ''];
    if (values.json) out(`${JSON.stringify({ ok: false, problems: lines }, null, 2)}\n`);
    else say(lines.map((line) => `${line}\n`).join(''));
    return Promise.resolve(EXIT.failed);
  }
  out(`${JSON.stringify(values.json ? report(loaded) : shown(loaded.config), null, 2)}\n`);
  if (!values.json) say(loaded.hints.map((hint) => `hint: ${hint}\n`).join(''));
  return Promise.resolve(EXIT.done);
}

function report({ config, hints, source }: LoadedConfig): object {
  return { ok: true, source, hints, config: shown(config) };
}

/** Secrets are in separate files; only a URL's query could contain one. */
function shown({ authorizer, delivery, ...rest }: Config): object {
  return { ...rest, authorizer: withoutQuery(authorizer), delivery: withoutQuery(delivery) };
}

function withoutQuery<T extends { readonly url?: string }>(section: T): T {
  return section.url === undefined ? section : { ...section, url: section.url.replace(/\?.*$/s, '?...') };
}
