/** `ra-sidecar accounts`: what holds for all keys of an account, in the keys file or the store of a fleet. */
import { accountOf } from '../access/key-file.js';
import type { Patch } from '../access/keys.js';
import { EXIT, parsed, UsageError } from './command.js';
import { COMMANDS } from './command-table.js';
import { countOf, keysOf, noted, QUOTAS, tokensText, type KeysIo, type Settings } from './keys.js';
import { columns } from './terminal.js';

const SPECS = COMMANDS.accounts.commands;

/** Runs `accounts` with these arguments. Resolves with the exit code, and rejects as `keys`. */
export async function accounts(
  config: Settings,
  [action, ...rest]: readonly string[],
  output: KeysIo,
): Promise<number> {
  switch (action) {
    case 'list':
      return await list(config, parsed(SPECS.list, rest).values.json === true, output);
    case 'freeze':
      return await change(config, action, parsed(SPECS.freeze, rest).operands[0] ?? '', { frozen: true }, output);
    case 'unfreeze':
      return await change(config, action, parsed(SPECS.unfreeze, rest).operands[0] ?? '', { frozen: null }, output);
    case 'set': {
      const { values, operands } = parsed(SPECS.set, rest);
      const quotas = QUOTAS.flatMap(({ field, time }) => {
        const given = values[`tokens-per-${time}`];
        if (given === undefined) return [];
        return [[field, given === 'none' ? null : countOf(`--tokens-per-${time}`, given)] as const];
      });
      if (quotas.length === 0) throw new UsageError('accounts set: a quota is needed');
      return await change(config, 'change-account', operands[0] ?? '', Object.fromEntries(quotas), output);
    }
    default:
      throw new UsageError(action === undefined ? 'accounts: a command is required' : 'accounts: unknown command');
  }
}

async function list(config: Settings, json: boolean, output: KeysIo): Promise<number> {
  const file = await keysOf(config);
  const counts = new Map(Object.keys(file.accounts ?? {}).map((account) => [account, 0]));
  for (const { account = '', revoked } of file.keys)
    counts.set(account, (counts.get(account) ?? 0) + Number(revoked === undefined));
  counts.delete('');
  const found = Array.from(counts, ([account, keys]) => {
    const { frozen = false, ...quotas } = accountOf(file, account) ?? {};
    return { account, frozen, keys, quotas };
  });
  const cells = found.map(({ account, frozen, keys, quotas }) => {
    return [account, frozen ? 'frozen' : 'open', `${keys}`, tokensText(quotas) ?? '-'];
  });
  output.out(json ? `${JSON.stringify(found)}\n` : columns([['ACCOUNT', 'STATE', 'KEYS', 'TOKENS'], ...cells]));
  return EXIT.done;
}

async function change(config: Settings, action: string, name: string, patch: Patch, output: KeysIo): Promise<number> {
  const done = await noted(config, action, output, (store) => store.changeAccount(name, patch));
  if (done.kind === 'account') {
    output.err(`changed ${name}\n`);
    return EXIT.done;
  }
  output.err(
    done.kind === 'unknown'
      ? 'ra-sidecar: there is no such account; `ra-sidecar accounts list` shows them\n'
      : `ra-sidecar: ${done.field} ${done.why}\n`,
  );
  return EXIT.failed;
}
