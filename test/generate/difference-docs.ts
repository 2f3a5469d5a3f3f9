/** The list of test/goldens/README.md with the differences from llama-server: their pairs are in test/goldens/differences.ts. */
import { DIFFERENCES, UNLISTED, type Verdict } from '../goldens/differences.js';
import { CONVERSATIONS } from '../goldens/conversations.js';

const [BEGIN, END] = ['<!-- differences: begin -->', '<!-- differences: end -->'];

/** The page with the list between its marks. `templates`: how many there are. */
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
    `Of ${pairs.toLocaleString('en')} pairs (${templates} templates, ${all.length} conversations) ${(pairs - unlisted - listed).toLocaleString('en')} are equal, or refused by both. ${unlisted} differ since ${UNLISTED.length} templates list no tools ([tool-formats.md](../../docs/tool-formats.md#templates-that-list-no-tools)): ${UNLISTED.join(', ')}. ${listed} differ for other reasons: of these Jinja2 renders ${by('sidecar')} as the sidecar does, ${by('llama-server')} as llama-server does and ${by('neither')} as neither, and it throws at ${by('throws')}.`,
    '',
    ...reasons()
      .filter(([, { templates, rights }]) => templates.size > FEW || !rights.has('sidecar'))
      .map(
        ([why, { templates, rights }]) =>
          `- ${named([...templates])}${rights.has('sidecar') ? '' : ', where llama-server is right'}: ${why}`,
      ),
  ].join('\n');
}

interface Reason {
  readonly templates: Set<string>;
  readonly rights: Set<string>;
}

/** Differences by their reason, the most frequent first. Those of few templates are in the test's list alone, if the sidecar is right. */
function reasons(): (readonly [why: string, Reason])[] {
  const found = new Map<string, Reason>();
  for (const { why, template, right } of DIFFERENCES) {
    const reason = found.get(why) ?? { templates: new Set(), rights: new Set() };
    reason.templates.add(template);
    reason.rights.add(right);
    found.set(why, reason);
  }
  return [...found].sort(([, a], [, b]) => b.templates.size - a.templates.size);
}

/** Many are counted: their names are in test/goldens/differences.ts. */
function named(templates: readonly string[]): string {
  return templates.length > MAX_NAMED ? `${templates.length} templates` : templates.join(', ');
}

const MAX_NAMED = 2;
const FEW = 5;

function countOf(conversations: string): number {
  return conversations.split(' ').length;
}
