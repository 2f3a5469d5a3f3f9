/**
 * Small multiples over the load as one SVG: a line a policy, labelled at its end. The same input gives the same bytes.
 */

export interface Point {
  readonly load: number;
  /** 0 to 1. */
  readonly share: number;
}

export interface Line {
  readonly name: string;
  readonly points: readonly Point[];
}

export interface Panel {
  readonly title: string;
  readonly unit: string;
  readonly percent: boolean;
  /**
   * At most as many as there are styles, in the same order in each panel; the last is the one that the chart is about.
   */
  readonly lines: readonly Line[];
}

interface Style {
  readonly light: string;
  readonly dark: string;
  readonly dash: string;
}

/** Distinguished by lightness and dashes too, for readers who see few colours. */
const STYLES: readonly Style[] = [
  { light: '#6b7280', dark: '#9aa3af', dash: '2 3' },
  { light: '#b45309', dark: '#f0a03c', dash: '8 3' },
  { light: '#0f766e', dark: '#2dc4b0', dash: '5 3 1 3' },
  { light: '#7c3aed', dark: '#b79bf5', dash: '1 0' },
  { light: '#0b62d6', dark: '#5ba3fb', dash: '1 0' },
];

const WIDTH = 960;
const TOP = 86;
const PANEL = { width: 480, height: 270 };
/** The plot inside its panel; the labels are to the right of it. */
const PLOT = { left: 56, top: 44, width: 268, height: 160 };
const LABEL_GAP = 15;
const COLUMNS = 2;

/** All panels have the same loads, of which `axis` says what they are; the axis is logarithmic. */
export function chart(
  title: string,
  subtitle: string,
  panels: readonly Panel[],
  axis = 'load, times what the seats can serve',
): string {
  const height = TOP + Math.ceil(panels.length / COLUMNS) * PANEL.height;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="title about">`,
    `<title id="title">${escaped(title)}</title>`,
    `<desc id="about">${escaped(`${subtitle} ${panels.map(inWords).join(' ')}`)}</desc>`,
    `<style>${css()}</style>`,
    `<rect class="paper" width="${WIDTH}" height="${height}" rx="6"/>`,
    text(24, 36, 'heading', title),
    text(24, 58, 'note', subtitle),
    ...panels.map(
      (panel, i) =>
        `<g transform="translate(${(i % COLUMNS) * PANEL.width} ${TOP + Math.floor(i / COLUMNS) * PANEL.height})">\n${drawn(panel, axis)}\n</g>`,
    ),
    '</svg>\n',
  ].join('\n');
}

function drawn({ title, unit, percent, lines }: Panel, axis: string): string {
  const loads = (lines[0]?.points ?? []).map(({ load }) => load);
  const x = scale(loads);
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return [
    text(24, 14, 'title', title),
    text(24, 31, 'note', unit),
    ...ticks.flatMap((share) => [
      `<path class="${share === 0 ? 'axis' : 'grid'}" d="M${PLOT.left} ${fixed(y(share))}h${PLOT.width}"/>`,
      text(PLOT.left - 8, y(share) + 4, 'tick end', percent ? `${share * 100} %` : String(share)),
    ]),
    ...loads.flatMap((load) => [
      `<path class="axis" d="M${fixed(x(load))} ${fixed(y(0))}v4"/>`,
      text(x(load), y(0) + 18, 'tick middle', `${load}×`),
    ]),
    text(PLOT.left + PLOT.width / 2, y(0) + 36, 'note middle', axis),
    // The last line is drawn under the others, since it is broad: coinciding lines can all be seen.
    ...lines.map((line, i) => curve(line, styleOf(i, lines.length), x)).reverse(),
    ...labels(lines, x),
  ].join('\n');
}

/** The last line has the last style, however many there are. */
function styleOf(i: number, lines: number): number {
  return STYLES.length - lines + i;
}

function curve({ points }: Line, style: number, x: (load: number) => number): string {
  const path = points
    .map(({ load, share }, i) => `${i === 0 ? 'M' : 'L'}${fixed(x(load))} ${fixed(y(share))}`)
    .join('');
  const dots = points.map(
    ({ load, share }) => `<circle class="dot s${style}" cx="${fixed(x(load))}" cy="${fixed(y(share))}" r="2.5"/>`,
  );
  return [`<path class="line s${style}" d="${path}"/>`, ...dots].join('');
}

/** At the height of the line’s end, or as near to it as the other labels allow. */
function labels(lines: readonly Line[], x: (load: number) => number): string[] {
  const ends = lines
    .map(({ name, points }, i) => ({
      name,
      style: styleOf(i, lines.length),
      end: points.at(-1) ?? { load: 1, share: 0 },
    }))
    // Those that fall together in the drawing: the last line first.
    .sort((a, b) => Math.round(100 * b.end.share) - Math.round(100 * a.end.share) || b.style - a.style);
  const heights = spread(ends.map(({ end }) => y(end.share)));
  return ends.map(({ name, style, end }, i) => {
    const from = x(end.load) + 6;
    const at = heights[i] ?? 0;
    const leader = `<path class="leader s${style}" d="M${fixed(from)} ${fixed(y(end.share))}L${fixed(from + 14)} ${fixed(at)}"/>`;
    return `${leader}${text(from + 18, at + 4, `name t${style}`, name)}`;
  });
}

/** Moves heights (ascending) apart until none overlap, keeping each group around its original place. */
function spread(wanted: readonly number[]): number[] {
  const groups: { sum: number; count: number }[] = [];
  const top = ({ sum, count }: { sum: number; count: number }): number =>
    Math.min(
      Math.max(sum / count - ((count - 1) * LABEL_GAP) / 2, PLOT.top),
      PLOT.top + PLOT.height - (count - 1) * LABEL_GAP,
    );
  for (const height of wanted) {
    let group = { sum: height, count: 1 };
    for (let above = groups.at(-1); above && top(above) + above.count * LABEL_GAP > top(group); above = groups.at(-1)) {
      group = { sum: above.sum + group.sum, count: above.count + group.count };
      groups.pop();
    }
    groups.push(group);
  }
  return groups.flatMap((group) => Array.from({ length: group.count }, (_, i) => top(group) + i * LABEL_GAP));
}

function scale(loads: readonly number[]): (load: number) => number {
  const [low, high] = [Math.log(Math.min(...loads)), Math.log(Math.max(...loads))];
  return (load) => PLOT.left + 8 + ((Math.log(load) - low) / (high - low)) * (PLOT.width - 16);
}

function y(share: number): number {
  return PLOT.top + (1 - share) * PLOT.height;
}

function inWords({ title, percent, lines }: Panel): string {
  const value = (share: number): string => (percent ? `${(share * 100).toFixed(0)} %` : share.toFixed(2));
  const line = ({ name, points }: Line): string =>
    `${name} ${points.map(({ load, share }) => `${value(share)} at ${load}×`).join(', ')}`;
  return `${title}: ${lines.map(line).join('; ')}.`;
}

function css(): string {
  const colours = (mode: 'light' | 'dark'): string =>
    STYLES.map((style, i) => `.s${i}{stroke:${style[mode]}}.t${i},.dot.s${i}{fill:${style[mode]}}`).join('');
  const last = STYLES.length - 1;
  return [
    'text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;fill:#1f2328}',
    '.heading{font-size:19px;font-weight:600}.title{font-size:14px;font-weight:600}.note,.tick{fill:#59636e}',
    '.tick{font-size:11px}.end{text-anchor:end}.middle{text-anchor:middle}',
    '.paper{fill:#fff}.grid{stroke:#e3e7eb}.axis{stroke:#8b949e}.line{fill:none;stroke-width:1.75;stroke-linejoin:round}',
    '.dot{stroke:none}.leader{fill:none;stroke-width:1;opacity:.55}',
    ...STYLES.map(({ dash }, i) => (dash === '1 0' ? '' : `.line.s${i}{stroke-dasharray:${dash}}`)),
    `.line.s${last}{stroke-width:5;stroke-opacity:.55}.t${last}{font-weight:700}`,
    colours('light'),
    '@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note,.tick{fill:#9aa4af}.paper{fill:#0d1117}.grid{stroke:#262c34}.axis{stroke:#6e7681}',
    `${colours('dark')}}`,
  ].join('');
}

function text(x: number, at: number, style: string, content: string): string {
  return `<text class="${style}" x="${fixed(x)}" y="${fixed(at)}">${escaped(content)}</text>`;
}

function fixed(value: number): string {
  return String(Number(value.toFixed(1)));
}

function escaped(content: string): string {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
