/** All commands, from which the parser, the help texts and docs/cli.md are made. cli.ts runs them. */
import { MODEL_KINDS } from '../config/model-schema.js';
import type { Command, Group, Option } from './command.js';

/** An option with a value. `value`: its placeholder in a help text. */
function takes(value: string, about: string, more: Pick<Option, 'choices'> = {}) {
  return { type: 'string', value, about, ...more } as const satisfies Option;
}

const JSON_OPTION = { type: 'boolean', about: 'print JSON' } as const satisfies Option;

const serve = {
  about: 'run the sidecar until SIGTERM or SIGINT',
  details: [
    'The log goes to stdout, one JSON object a line; messages for people go to stderr. The first SIGTERM or SIGINT drains, a second one ends the process at once (exit code 130). SIGHUP reloads keys and secrets.',
    'Agents, structured outputs and the Responses API need RA_CONTRACT=compatible (docs/clients.md).',
  ],
  options: {},
  failed: 'the configuration, a file, an address or a model prevents the start',
} as const satisfies Command;

const checkConfig = {
  about: 'check the configuration and print the effective settings',
  details:
    'Prints all settings with their defaults as JSON, or all problems. Reads no other file: ra-sidecar doctor checks those that the configuration names.',
  operand: { name: 'FILE', about: 'a configuration file; default: the one that RA_CONFIG names', optional: true },
  options: { json: { type: 'boolean', about: 'print the problems as JSON too' } },
  failed: 'the configuration is invalid',
} as const satisfies Command;

const keys = {
  about: 'manage callers’ keys',
  commands: {
    create: {
      about: 'create a key and print it once; only its hash is stored',
      options: {
        account: takes('A', 'the account that the key belongs to (required)'),
        environment: takes('E', 'the environment that the entitlements apply to; default: the configured one'),
        models: takes('a,b|all', 'default: all'),
        routes: takes('chat,...', 'of chat, decisions, systemone, embeddings, rerank, batch; default: all'),
        cohort: takes('C', 'the cohort whose restricted models it may call'),
        expires: takes('T', 'a time (2027-01-31T00:00:00Z) or a duration from now (30d, 12h, 90m); default: never'),
        class: takes('C', 'service class, the weight when seats are shared; default: standard', {
          choices: ['interactive', 'standard', 'batch'],
        }),
        limits: takes(
          'G=N/M,...',
          'N requests in flight and M a minute for decisions, chat, embeddings or models; 0: no limit',
        ),
        usage: takes('U', 'account: it sees the usage and the balance of its account; default: its own usage', {
          choices: ['account'],
        }),
        tiers: takes('T,...', 'of flex and priority: it may ask for them; default: none'),
        'tokens-per-minute': takes('N', 'prompt and completion tokens in any 60 seconds'),
        'tokens-per-day': takes('N', 'the same from one midnight UTC to the next'),
        'tokens-per-month': takes('N', 'the same in a calendar month, UTC'),
      },
      failed: 'the keys file is invalid or cannot be written; a missing one is created',
    },
    list: {
      about: 'list all keys, without their hashes',
      options: { json: JSON_OPTION },
      failed: 'the keys file is invalid; a missing one has no keys',
    },
    revoke: {
      about: 'revoke a key, and wait until the running sidecar rejects it',
      details:
        'It asks the operators’ listener of its configuration for at most 5 s. If it cannot see that the sidecar rejects the key, it says why; the key is revoked all the same.',
      operand: { name: 'ID', about: 'id of the key, as list shows it' },
      options: {},
      failed: 'there is no such key, or the keys file is invalid',
    },
    rotate: {
      about: 'create a new key with the rights of the old one; the old one is revoked, now or after the grace',
      operand: { name: 'ID', about: 'id of the old key' },
      options: { grace: takes('24h', 'how long the old key still works; default: not at all') },
      failed: 'there is no such valid key, or the keys file is invalid',
    },
    import: {
      about: 'add the keys of a file to those of the store (docs/store.md)',
      details:
        'Also the properties of its accounts. Keys and accounts that the store has are left as they are; development keys are left out.',
      operand: { name: 'FILE', about: 'a keys file; default: that of keys.file', optional: true },
      options: {},
      failed: 'the file is invalid, or the store refuses; nothing is changed then',
    },
  },
} as const satisfies Group;

const accounts = {
  about: 'the accounts of callers’ keys: freeze them, and set their quotas',
  commands: {
    list: {
      about: 'list the accounts that have keys or properties',
      options: { json: JSON_OPTION },
      failed: 'the keys file is invalid, or the store does not answer',
    },
    freeze: {
      about: 'reject all keys of an account until it is unfrozen',
      operand: { name: 'ACCOUNT', about: 'an account that has a key' },
      options: {},
      failed: 'there is no such account, or the keys file is invalid',
    },
    unfreeze: {
      about: 'accept the keys of an account again',
      operand: { name: 'ACCOUNT', about: 'the account' },
      options: {},
      failed: 'there is no such account, or the keys file is invalid',
    },
    set: {
      about: 'set quotas for all keys of an account together',
      operand: { name: 'ACCOUNT', about: 'an account that has a key' },
      options: {
        'tokens-per-minute': { type: 'string', value: 'N', about: 'tokens in any 60 seconds; none: no quota' },
        'tokens-per-day': { type: 'string', value: 'N', about: 'the same from one midnight UTC to the next' },
        'tokens-per-month': { type: 'string', value: 'N', about: 'the same in a calendar month, UTC' },
      },
      failed: 'there is no such account, or the keys file is invalid',
    },
  },
} as const satisfies Group;

const prices = {
  about: 'the prices in the store of a fleet (docs/store.md)',
  commands: {
    import: {
      about: 'check a price file and put it into the store, in place of the one there',
      details: 'It must price every model of this configuration, as at a start.',
      operand: { name: 'FILE', about: 'a price file' },
      options: {
        revision: takes(
          'REVISION',
          'replace the prices with this revision, which `prices show` prints, and no later ones',
        ),
      },
      failed: 'the file is invalid, or the store refuses; nothing is changed then',
    },
    show: {
      about: 'print the price file of the store, and on stderr its revision',
      options: {},
      failed: 'the store has none, or does not answer',
    },
  },
} as const satisfies Group;

const usage = {
  about: 'usage records: check for damage, export what was billed',
  commands: {
    verify: {
      about: 'read the whole usage spool and report damage',
      options: { json: JSON_OPTION },
      failed: 'there is damage, or no spool',
    },
    export: {
      about: 'write the billed requests to stdout, one a line, in the order of the spool',
      details: [
        'TIME is ISO 8601, for example 2026-10-03 or 2026-10-03T12:00:00Z; --to is exclusive.',
        'With --format focus: the sums of the hours that begin within the times, as CSV with the columns of FOCUS 1.2 (docs/usage.md#daily-sums).',
      ],
      options: {
        from: takes('TIME', 'from then on'),
        to: takes('TIME', 'before then'),
        account: takes('A', 'only this account'),
        fleet: { type: 'boolean', about: 'with focus: of all sidecars that share the store, by day' },
        format: takes('F', 'default: jsonl', { choices: ['jsonl', 'csv', 'focus'] }),
        provider: takes('NAME', 'with focus: provider, publisher and issuer; default: ra-sidecar'),
        service: takes('NAME', 'with focus: the name of what is sold; default: Model inference'),
        'billing-account': takes('ID', 'with focus: whose bill it is; default: default'),
      },
      failed: 'there is no spool, damaged bytes were skipped, or stdout was closed early',
    },
  },
} as const satisfies Group;

const store = {
  about: 'the PostgreSQL database in which sidecars share limits',
  commands: {
    migrate: {
      about: 'create or upgrade the schema, and let the user of store.url execute its functions',
      details:
        'Run it before the first sidecar of a release starts. Connects as the user of --url, who owns the schema and may not be a user of sidecars.',
      options: {
        url: takes('URL', 'as store.url, of the owner of the schema; default: store.url'),
        'password-file': takes('F', 'file with the owner’s password; default: store.passwordFile'),
      },
      failed: 'the database cannot be reached, or it refuses; nothing is changed then',
    },
    status: {
      about: 'print the version of the schema',
      options: { json: JSON_OPTION },
      failed: 'the store does not answer, or its schema is older than this release needs',
    },
  },
} as const satisfies Group;

const replicas = {
  about: 'list the sidecars that share the store, and what each holds of prepaid credit in USD',
  options: { json: JSON_OPTION },
  failed: 'the store does not answer',
} as const satisfies Command;

const LONGEST_OPTION = takes(
  'S',
  'its longest request, in seconds; default: request.timeoutMs, or 600 where that is 0',
);

const credit = {
  about: 'prepaid credit, in the store of a fleet (docs/store.md) but for balance',
  commands: {
    grant: {
      about: 'grant an account credit; a negative amount (--usd=-5.00) is a correction',
      details: 'A second grant with the same id changes nothing.',
      operand: { name: 'ACCOUNT', about: 'the account; it need not exist' },
      options: {
        usd: takes('N', 'dollars as decimal text, such as 25.00 (required)'),
        id: takes('ID', 'your id for it, such as an invoice’s number (required)'),
      },
      failed: 'there is a grant with this id, or the store refuses; nothing is changed then',
    },
    balance: {
      about: 'print what accounts were granted, have spent and have left',
      details: [
        'HELD is what sidecars hold: drawn, and neither charged nor returned. UNCOVERED is what was charged and not held, after a failover of the store.',
        'With credit.file: asks the sidecar that runs, for accounts with keys. The first key of operators.secretFile is sent.',
      ],
      operand: { name: 'ACCOUNT', about: 'one account; default: all', optional: true },
      options: { json: JSON_OPTION },
      failed: 'the store or the sidecar does not answer, or there is no such account',
    },
    reconcile: {
      about: 'post what the data folder of a dead sidecar still has, and give back what that sidecar held',
      details:
        'For a sidecar that will not be started again; a start with the same data folder does this by itself. It waits until the lease of the sidecar and its longest request have ended (docs/store.md#prepaid-credit).',
      options: { 'data-dir': takes('F', 'the data folder; default: dataDir'), longest: LONGEST_OPTION },
      failed: 'a sidecar uses the folder, it cannot be read, or the store does not answer',
    },
    'write-off': {
      about: 'give back what a sidecar held whose data folder is lost; what only its spool has is never charged',
      details: 'The sidecar must be gone for its longest request. It is fenced.',
      operand: { name: 'REPLICA', about: 'its id, as replicas shows it' },
      options: { longest: LONGEST_OPTION },
      failed: 'there is no such sidecar, or it may still run requests; nothing is changed then',
    },
  },
} as const satisfies Group;

const models = {
  about: 'the configured models, and model files',
  commands: {
    list: {
      about: 'list the configured models: file, size, architecture, quantisation, how they are loaded',
      options: { json: JSON_OPTION },
      failed: 'a model’s file cannot be read',
    },
    add: {
      about: 'download a model file, verify it, and print its entry for the configuration',
      details:
        'The URI: hf:USER/MODEL:QUANT, hf:USER/MODEL/FILE, https://... A file of the same name and size is assumed to be the same; a different one is never overwritten. A local file is verified in place.',
      operand: { name: 'URI', about: 'URI of the model, or a path' },
      options: { dir: takes('FOLDER', 'default: models in dataDir'), json: JSON_OPTION },
      failed: 'it cannot be downloaded, or the file cannot be served',
    },
    verify: {
      about: 'load a model file as an engine would, and print its memory and how many seats fit',
      details:
        'Checks the header, the tensors, the tokenizer, the chat template and the decision labels, then prints weights, KV per seat and the seats that fit for several contexts. Without a name all configured models must fit together. While a sidecar runs on this data folder, a model that does not fit is no failure. On a GPU the check uses some hundred MiB of its memory.',
      operand: {
        name: 'FILE|ID',
        about: 'a GGUF file, or the id of a configured model; default: all configured models',
        optional: true,
      },
      options: {
        kind: takes('K', 'the kind of model that a file is checked for; default: chat', { choices: MODEL_KINDS }),
        seats: takes('N', 'in place of the configured number; for a file: 8'),
        context: takes('N', 'tokens of one seat, in place of the configured number; for a file: 8192'),
        memory: takes('SIZE', 'check against this much host memory (24GiB) instead of what is free'),
        'gpu-memory': takes('SIZE', 'check against a GPU with this much free memory (80GiB), even if there is none'),
        json: JSON_OPTION,
      },
      failed: 'a model cannot be served; the line has the reason and the numbers',
    },
    reload: {
      about: 'load other weights of a model in the sidecar that runs, without refusing a request',
      details:
        'Replica by replica (docs/operating.md#new-weights-without-a-restart). Without --file the present path is read again, to which a new file was renamed. The first key of operators.secretFile is sent where one is set.',
      operand: { name: 'ID', about: 'a configured model' },
      options: { file: takes('F', 'a GGUF file; default: the present path'), json: JSON_OPTION },
      failed: 'no sidecar runs, or a replica keeps its present weights; the line has the reason',
    },
    vocabulary: {
      about: 'write a file with the tokenizer and the chat template of a model alone, for an external server',
      details: 'For `file` of a model of an external server (docs/engines.md). Nothing is overwritten.',
      operand: { name: 'FILE OUT', about: 'a GGUF file, and the file to write', many: true },
      options: {},
      failed: 'the file is no model, or the other one exists or cannot be written',
    },
  },
} as const satisfies Group;

const batches = {
  about: 'batches of callers (docs/batches.md)',
  commands: {
    list: {
      about: 'list the batches of the sidecar that runs, the newest 200 first: account, status, progress',
      details: 'Asks the operators’ listener.',
      options: { json: JSON_OPTION },
      failed: 'no sidecar runs',
    },
    cancel: {
      about: 'cancel a batch; lines that run are stopped and cost nothing, answers so far stay',
      operand: { name: 'ID', about: 'id of the batch, as list shows it' },
      options: {},
      failed: 'no sidecar runs, or there is no such batch',
    },
    drop: {
      about: 'forget a batch that has ended, with its answers; or all files and batches of the data folder',
      details: 'With --all no sidecar may run: it removes the folder batches of dataDir, even if its key is lost.',
      operand: { name: 'ID', about: 'id of the batch, as list shows it', optional: true },
      options: { all: { type: 'boolean', about: 'all files, batches and answers on disk' } },
      failed: 'there is no such batch, it has not ended, or with --all a sidecar runs',
    },
  },
} as const satisfies Group;

const bench = {
  about: 'measure the configured models on this machine, through the real engine process',
  details:
    'For a chat model: prompt tokens a second, and reply tokens a second with one seat busy and with all. For a decision model: prompt tokens and decisions a second. Of equal replicas one is measured. First stop a sidecar that serves.',
  operand: { name: 'ID', about: 'a configured model; default: all', optional: true, many: true },
  options: { seconds: takes('N', 'how long each figure is measured, 1 to 60; default: 3'), json: JSON_OPTION },
  failed: 'a model cannot be loaded or does not answer',
} as const satisfies Command;

const doctor = {
  about: 'check this machine as the sidecar would use it, with advice for each problem',
  details:
    'GPU, backend, memory, cores, threads, seats and why; Node, file descriptors, folders, ports and the files that the configuration names. Changes nothing; uses some hundred MiB of a GPU’s memory for a moment. Beside a running sidecar, a model that does not fit is a warning.',
  options: { json: JSON_OPTION },
  failed: 'a problem would prevent the sidecar from serving',
} as const satisfies Command;

/** By name, in the order of the help text. */
export const COMMANDS = {
  serve,
  'check-config': checkConfig,
  keys,
  accounts,
  usage,
  store,
  replicas,
  credit,
  prices,
  models,
  batches,
  bench,
  doctor,
} as const;

export function isGroup(entry: Command | Group): entry is Group {
  return 'commands' in entry;
}
