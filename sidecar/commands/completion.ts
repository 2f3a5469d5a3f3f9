/**
 * Scripts that complete `ra-sidecar` in a shell, made from the table: commands, their options, and the values of
 * options and operands. They do not run the sidecar, so completion is fast and needs no configuration.
 */
import { EXIT, parsed, type Command, type Completes, type Output } from './command.js';
import { allCommands, COMMANDS, isGroup } from './command-table.js';

/** What is completed at one place. */
interface Offer {
  readonly words?: readonly string[];
  readonly completes?: Completes;
}

/** `ra-sidecar completion SHELL`. */
export function completion(args: readonly string[], { out }: Output): Promise<number> {
  const [shell = ''] = parsed(COMMANDS.completion, args).operands;
  out((SHELLS.get(shell) ?? bash)());
  return Promise.resolve(EXIT.done);
}

const SHELLS: ReadonlyMap<string, () => string> = new Map([
  ['bash', bash],
  ['zsh', zsh],
  ['fish', fish],
]);

/** Names after `ra-sidecar`, and after the name of a group. */
function names(): ReadonlyMap<string, readonly (readonly [name: string, about: string])[]> {
  const entries = Object.entries(COMMANDS);
  const groups = entries.flatMap(([name, entry]) => (isGroup(entry) ? [[name, entry] as const] : []));
  return new Map([
    ['', entries.map(([name, { about }]) => [name, about] as const)],
    ...groups.map(
      ([name, { commands }]) =>
        [name, Object.entries<Command>(commands).map(([action, { about }]) => [action, about] as const)] as const,
    ),
  ]);
}

/** Options of a command that have a value, and its completion. */
function valued({ options }: Command): (readonly [flag: string, offer: Offer])[] {
  return Object.entries(options).flatMap(([name, { type, choices, completes }]) =>
    type === 'string' ? [[`--${name}`, offerOf(choices, completes)] as const] : [],
  );
}

function flags({ options }: Command): string[] {
  return [...Object.keys(options).map((name) => `--${name}`), '--help'];
}

function offerOf(words: readonly string[] | undefined, completes: Completes | undefined): Offer {
  return { ...(words && { words }), ...(completes && { completes }) };
}

/** The completion for bash: `mapfile` keeps names with spaces in one piece. */
function bashReply({ words, completes }: Offer): string {
  if (words) return `mapfile -t COMPREPLY < <(compgen -W ${quoted(words.join(' '))} -- "$word")`;
  if (completes === undefined) return ':';
  return `compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen ${completes === 'file' ? '-f' : '-d'} -- "$word")`;
}

function bash(): string {
  const paths = [...names().keys()].filter((path) => path !== '');
  const leaves = allCommands();
  return `# bash completion for ra-sidecar; made by: ra-sidecar completion bash
_ra_sidecar() {
  local word=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} path='' i
  # Readline makes words of their own of = and what stands around it.
  if [[ $word == = ]]; then word=''
  elif [[ $previous == = ]]; then previous=\${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD && i < 3; i++)); do
    case "$path \${COMP_WORDS[i]}" in
${[...leaves.map(([path]) => path), ...paths].map((path) => `      ${quoted(path.includes(' ') ? path : ` ${path}`)}) path=${quoted(path)} ;;`).join('\n')}
    esac
  done
  COMPREPLY=()
  case "$path $previous" in
${leaves.flatMap(([path, command]) => valued(command).map(([flag, offer]) => `    ${quoted(`${path} ${flag}`)}) ${bashReply(offer)}; return ;;`)).join('\n')}
  esac
  case $path in
${[...names()].map(([path, list]) => `    ${quoted(path)}) ${bashReply({ words: [...list.map(([name]) => name), '--help'] })} ;;`).join('\n')}
${leaves.map(([path, command]) => `    ${quoted(path)}) if [[ $word == -* ]]; then ${bashReply({ words: flags(command) })}; else ${bashReply(operandOf(command))}; fi ;;`).join('\n')}
  esac
}
complete -F _ra_sidecar ra-sidecar
`;
}

/** The completion of a command's operand, or its options if it has none. */
function operandOf(command: Command): Offer {
  const { operand } = command;
  return operand ? offerOf(operand.choices, operand.completes) : { words: flags(command) };
}

function zshReply({ words, completes }: Offer): string {
  if (words) return `compadd -- ${words.map(quoted).join(' ')}`;
  return completes === undefined ? ':' : `_files${completes === 'folder' ? ' -/' : ''}`;
}

function zsh(): string {
  const leaves = allCommands();
  const described = (list: readonly (readonly [string, string])[]): string =>
    `offers=(${list.map(([name, about]) => quoted(`${name}:${about.replaceAll(':', '\\:')}`)).join(' ')}); _describe command offers`;
  return `#compdef ra-sidecar
# zsh completion for ra-sidecar; made by: ra-sidecar completion zsh
_ra_sidecar() {
  local -a offers
  local path_='' previous=\${words[CURRENT-1]} word=\${words[CURRENT]}
  case "\${words[2]} \${words[3]}" in
${leaves
  .filter(([path]) => path.includes(' '))
  .map(
    ([path]) =>
      `    ${quoted(path)}) (( CURRENT > 3 )) && path_=${quoted(path)} || path_=${quoted(path.split(' ')[0] ?? '')} ;;`,
  )
  .join('\n')}
    *) (( CURRENT > 2 )) && path_=\${words[2]} ;;
  esac
  case "$path_ $previous" in
${leaves.flatMap(([path, command]) => valued(command).map(([flag, offer]) => `    ${quoted(`${path} ${flag}`)}) ${zshReply(offer)}; return ;;`)).join('\n')}
  esac
  case $path_ in
${[...names()].map(([path, list]) => `    ${quoted(path)}) ${described(list)} ;;`).join('\n')}
${leaves.map(([path, command]) => `    ${quoted(path)}) if [[ $word == -* ]]; then ${zshReply({ words: flags(command) })}; else ${zshReply(operandOf(command))}; fi ;;`).join('\n')}
  esac
}
if [[ $funcstack[1] == _ra_sidecar ]]; then _ra_sidecar "$@"; else compdef _ra_sidecar ra-sidecar; fi
`;
}

function fish(): string {
  const lines = ['# fish completion for ra-sidecar; made by: ra-sidecar completion fish', 'complete -c ra-sidecar -f'];
  for (const [path, list] of names()) {
    const others = list.map(([name]) => name).join(' ');
    const here =
      path === ''
        ? '__fish_use_subcommand'
        : `__fish_seen_subcommand_from ${path}; and not __fish_seen_subcommand_from ${others}`;
    for (const [name, about] of list)
      lines.push(`complete -c ra-sidecar -n ${quoted(here)} -a ${name} -d ${quoted(about)}`);
  }
  for (const [path, command] of allCommands()) {
    const here = path
      .split(' ')
      .map((name) => `__fish_seen_subcommand_from ${name}`)
      .join('; and ');
    const at = `complete -c ra-sidecar -n ${quoted(here)}`;
    for (const [name, option] of Object.entries(command.options)) {
      const offer = offerOf(option.choices, option.completes);
      // -x: a value is required and files are not offered; -r alone would offer files too.
      const value = option.type === 'boolean' ? '' : `${offer.completes === 'file' ? ' -r' : ' -x'}${fishReply(offer)}`;
      lines.push(`${at} -l ${name} -d ${quoted(option.about)}${value}`);
    }
    const { operand } = command;
    if (operand) lines.push(`${at}${fishReply(offerOf(operand.choices, operand.completes)) || ' -f'}`);
  }
  return `${lines.join('\n')}\n`;
}

function fishReply({ words, completes }: Offer): string {
  if (words) return ` -a ${quoted(words.join(' '))}`;
  if (completes === undefined) return '';
  return completes === 'file' ? ' -F' : " -a '(__fish_complete_directories)'";
}

/** The text quoted as one word of a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
