/** The table of docs/tool-formats.md with the differences from llama-server. */
import { DIFFERENCES, UNLISTED, type Difference, type Verdict } from '../goldens/differences.js';
import { CONVERSATIONS } from '../goldens/conversations.js';
import { row } from './markdown.js';

const [BEGIN, END] = ['<!-- differences: begin -->', '<!-- differences: end -->'];

/** The page with the table between its marks. `templates`: how many there are. */
export function withDifferences(page: string, templates: number): string {
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (from < 0 || to < from) throw new Error('the page has no place for the differences');
  return `${page.slice(0, from)}${BEGIN}\n\n${differences(templates)}\n\n${page.slice(to)}`;
}

function differences(templates: number): string {
  const all = Object.values(CONVERSATIONS);
  const withTools = all.filter(({ tools }) => tools).length;
  const pairs = templates * all.length;
  const unlisted = UNLISTED.length * withTools;
  const by = (verdict: Verdict): number =>
    DIFFERENCES.reduce((sum, { jinja, conversations }) => sum + (jinja === verdict ? countOf(conversations) : 0), 0);
  const listed = by('sidecar') + by('llama-server') + by('neither') + by('throws');
  return [
    `Of ${pairs.toLocaleString('en')} pairs (${templates} templates, ${all.length} conversations) ${(pairs - unlisted - listed).toLocaleString('en')} are equal, or refused by both. ${unlisted} differ since ${UNLISTED.length} templates list no tools (above): ${UNLISTED.join(', ')}. ${listed} differ for other reasons: of these Jinja2 renders ${by('sidecar')} as the sidecar does, ${by('llama-server')} as llama-server does and ${by('neither')} as neither, and it throws at ${by('throws')}.`,
    '',
    row('template', 'conversations', 'Jinja2 renders as', 'right', 'why'),
    row('---', '---', '---', '---', '---'),
    ...sameDifferences().map(([{ conversations, jinja, right, why }, templates]) =>
      row(templatesText(templates), conversationsText(conversations), jinja, right, why),
    ),
  ].join('\n');
}

/** Differences that are the same but for their templates. */
function sameDifferences(): readonly (readonly [Difference, readonly string[]])[] {
  const same = new Map<string, readonly [Difference, string[]]>();
  for (const each of DIFFERENCES) {
    const key = JSON.stringify({ ...each, template: '' });
    const known = same.get(key);
    if (known === undefined) same.set(key, [each, [each.template]]);
    else known[1].push(each.template);
  }
  return [...same.values()];
}

/** Many are counted: their names are in test/goldens/differences.ts. */
function templatesText(templates: readonly string[]): string {
  return templates.length > MAX_NAMED ? `${templates.length} templates` : templates.join(', ');
}

const MAX_NAMED = 9;

function countOf(conversations: string): number {
  return conversations.split(' ').length;
}

/** All that have tools are not named one by one. */
function conversationsText(conversations: string): string {
  const withTools = Object.entries(CONVERSATIONS).flatMap(([name, { tools }]) => (tools ? [name] : []));
  return [...conversations.split(' ')].sort().join() === withTools.sort().join()
    ? `all ${withTools.length} with tools`
    : conversations.replaceAll(' ', ', ');
}
