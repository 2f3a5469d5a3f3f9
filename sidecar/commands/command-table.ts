/** All commands: the one source of the parser, the help texts, shell completion and docs/cli.md. What runs is in cli.ts. */
import type { Command, Group, Option } from './command.js';

const JSON_OPTION = { type: 'boolean', about: 'print JSON' } as const satisfies Option;

const serve = {
  about: 'run the sidecar until SIGTERM or SIGINT',
  details: [
    'The log goes to stdout, one JSON object a line; lines for people go to stderr. The first SIGTERM or SIGINT drains, a second one ends the process at once (exit code 130). SIGHUP reads keys and secrets again.',
  ],
  options: {},
  failed: 'the configuration, a file, an address or a model keeps it from starting',
} as const satisfies Command;

const checkConfig = {
  about: 'check the configuration and print what is in force',
  details: [
    'Prints all settings with their defaults as JSON, or every problem that can be told apart. Opens no file but the configuration itself: ra-sidecar doctor looks at those that it names. Secrets are in files of their own and are not printed; of a URL the query is left out.',
  ],
  operand: {
    name: 'FILE',
    about: 'a configuration file; default: the one that RA_CONFIG names',
    optional: true,
    completes: 'file',
  },
  options: { json: { type: 'boolean', about: 'print the problems as JSON too' } },
  failed: 'the configuration is wrong',
} as const satisfies Command;

const keys = {
  about: 'the keys that callers have',
  commands: {
    create: {
      about: 'make a key and print it once; only its hash is stored',
      options: {
        account: { type: 'string', value: 'A', about: 'whose key it is (required)' },
        environment: {
          type: 'string',
          value: 'E',
          about: 'where it may call what follows; default: the configured environment',
        },
        models: { type: 'string', value: 'a,b|all', about: 'default: all' },
        routes: { type: 'string', value: 'chat,...', about: 'of chat, decisions, systemone; default: all' },
        cohort: { type: 'string', value: 'C', about: 'whose gated models it may call' },
        expires: {
          type: 'string',
          value: 'T',
          about: 'a time (2027-01-31T00:00:00Z) or from now (30d, 12h, 90m); default: never',
        },
        class: {
          type: 'string',
          value: 'C',
          about: 'share of the seats; default: standard',
          choices: ['interactive', 'standard', 'batch'],
        },
        limits: {
          type: 'string',
          value: 'G=N/M,...',
          about: 'N in flight and M a minute for decisions, chat or models; 0: no limit',
        },
        'tokens-per-day': { type: 'string', value: 'N', about: 'prompt and completion tokens, by UTC day' },
      },
      failed: 'the keys file cannot be used',
    },
    list: {
      about: 'all keys, without their hashes',
      options: { json: JSON_OPTION },
      failed: 'the keys file cannot be used',
    },
    revoke: {
      about: 'the key works no more, from now on',
      operand: { name: 'ID', about: 'of the key, as list shows it' },
      options: {},
      failed: 'there is no such key, or the keys file cannot be used',
    },
    rotate: {
      about: 'a new key with all that the old one may; the old one is revoked, or works on for the grace',
      operand: { name: 'ID', about: 'of the old key' },
      options: { grace: { type: 'string', value: '24h', about: 'how long the old key works on; default: not at all' } },
      failed: 'there is no such key that is good, or the keys file cannot be used',
    },
  },
} as const satisfies Group;

const usage = {
  about: 'what was used: look for damage, write out what was billed',
  commands: {
    verify: {
      about: 'read the whole usage spool and say what is damaged',
      options: { json: JSON_OPTION },
      failed: 'something is damaged',
    },
    export: {
      about: 'write what was billed to stdout, one request a line, in the order of the spool',
      details: ['TIME is ISO 8601, for example 2026-10-03 or 2026-10-03T12:00:00Z; --to itself is left out.'],
      options: {
        from: { type: 'string', value: 'TIME', about: 'from then on' },
        to: { type: 'string', value: 'TIME', about: 'before then' },
        account: { type: 'string', value: 'A', about: 'of this account alone' },
        format: { type: 'string', value: 'F', about: 'default: jsonl', choices: ['jsonl', 'csv'] },
      },
      failed: 'damage was passed over, or stdout was closed early',
    },
  },
} as const satisfies Group;

const models = {
  about: 'the models that are configured, and files to be',
  commands: {
    list: {
      about: 'the configured models: file, size, architecture, quantisation, how they are loaded',
      options: { json: JSON_OPTION },
      failed: 'a model’s file cannot be read',
    },
    add: {
      about: 'get a model file, verify it, and say what to write into the configuration',
      details: [
        'node-llama-cpp resolves the URI: hf:USER/MODEL:QUANT, hf:USER/MODEL/FILE, https://... A file of the same name and size is taken for the same file; any other is never overwritten. A path of a file on this machine is verified where it is.',
      ],
      operand: { name: 'URI', about: 'where the model comes from, or a path', completes: 'file' },
      options: {
        dir: { type: 'string', value: 'FOLDER', about: 'default: models in dataDir', completes: 'folder' },
        json: JSON_OPTION,
      },
      failed: 'it cannot be fetched, or the file cannot be served',
    },
    verify: {
      about: 'load a model file as an engine would, and print what it takes and how many seats fit',
      details: [
        'Looks at the head, the tensors, the tokenizer, the chat template and the decision labels, then prints weights, KV per seat and the seats that fit for several contexts. Without a name all configured models are looked at, and have to fit together; what does not fit beside a sidecar that runs on this data folder is told and is no failure. Nothing is served meanwhile. On a GPU no weights are loaded; looking at it takes some hundred MiB of its memory for that time.',
      ],
      operand: {
        name: 'FILE|ID',
        about: 'a GGUF file, or the id of a configured model; default: all configured models',
        optional: true,
        completes: 'file',
      },
      options: {
        kind: {
          type: 'string',
          value: 'K',
          about: 'what a file is to serve; default: chat',
          choices: ['chat', 'decision'],
        },
        seats: { type: 'string', value: 'N', about: 'in place of the configured number; of a file: 8' },
        context: {
          type: 'string',
          value: 'N',
          about: 'tokens of one seat, in place of the configured number; of a file: 8192',
        },
        memory: {
          type: 'string',
          value: 'SIZE',
          about: 'reckon with so much memory (24GiB) and not with what is free',
        },
        json: JSON_OPTION,
      },
      failed: 'a model cannot be served; the line says why, with the numbers',
    },
  },
} as const satisfies Group;

const bench = {
  about: 'measure the configured models on this machine, through the real engine process',
  details: [
    'For a chat model: prompt tokens a second, and reply tokens a second with one seat busy and with all. For a decision model: prompt tokens and decisions a second. What else the machine does meanwhile is in the figures: stop a sidecar that serves first.',
  ],
  operand: { name: 'ID', about: 'a configured model; default: all', optional: true, many: true },
  options: {
    seconds: { type: 'string', value: 'N', about: 'how long each figure is measured, 1 to 60; default: 3' },
    json: JSON_OPTION,
  },
  failed: 'a model cannot be loaded or does not answer',
} as const satisfies Command;

const doctor = {
  about: 'look at this machine as the sidecar would use it, and say what to do about what is wrong',
  details: [
    'GPU, backend, memory, cores, threads, seats and why; Node, file descriptors, folders, ports and the files that the configuration names. Changes nothing, and takes nothing but some hundred MiB of a GPU’s memory for a moment. May run beside the sidecar: what does not fit into memory is then a warning, since that sidecar holds its part.',
  ],
  options: { json: JSON_OPTION },
  failed: 'something would keep the sidecar from serving',
} as const satisfies Command;

const completion = {
  about: 'print a script that completes this command line in a shell',
  details: [
    'bash: source <(ra-sidecar completion bash); zsh: ra-sidecar completion zsh > a file _ra-sidecar in $fpath; fish: ra-sidecar completion fish | source',
  ],
  operand: { name: 'SHELL', about: 'which shell', choices: ['bash', 'zsh', 'fish'] },
  options: {},
  failed: 'never',
} as const satisfies Command;

/** By name, in the order of the help text. */
export const COMMANDS = { serve, 'check-config': checkConfig, keys, usage, models, bench, doctor, completion } as const;

export function isGroup(entry: Command | Group): entry is Group {
  return 'commands' in entry;
}

/** Every command with its full name, such as `keys create`. */
export function allCommands(): readonly (readonly [path: string, command: Command])[] {
  return Object.entries<Command | Group>(COMMANDS).flatMap(([name, entry]) =>
    isGroup(entry)
      ? Object.entries(entry.commands).map(([action, command]) => [`${name} ${action}`, command] as const)
      : [[name, entry] as const],
  );
}
