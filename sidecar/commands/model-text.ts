/** Formats the results about a model for people. */
import { MOST_SEATS } from '../config/model-schema.js';
import type { Fit, ModelReport } from '../engine-client/inspector.js';
import { columns, size } from './layout.js';
import { reasons, serves, shortOfMemory, type Sizing } from './sizing.js';

/** All of it, several lines. */
export function modelText(sizing: Sizing): string {
  const { id, setup, inspected } = sizing;
  const verdict = serves(sizing)
    ? `it can be served as a ${setup.kind} model${shortOfMemory(sizing) === undefined ? '' : ', once there is enough memory'}`
    : `it cannot be served: ${reasons(sizing).join('; ')}`;
  if (inspected.kind === 'failed') return `${id}\n  ${verdict}\n`;
  const { answer } = inspected;
  const lines = [
    id,
    ...headLines(answer),
    ...answer.findings.map(({ what, ok, needed, says }) => `  ${mark(ok, needed)} ${what.padEnd(13)}${says}`),
    ...loadLines(answer),
    ...fitLines('memory', answer.memory, setup.seats),
    ...fitLines('GPU memory', answer.gpuMemory, setup.seats),
  ];
  const table = answer.sizes.length === 0 ? '' : indented(sizeTable(answer));
  return `${lines.join('\n')}\n${table}  ${verdict}\n`;
}

function mark(ok: boolean, needed: boolean): string {
  if (ok) return 'ok  ';
  return needed ? 'fail' : 'no  ';
}

function headLines({ head }: ModelReport): string[] {
  if (!head) return [];
  const { name, architecture, quantisation, bytes, trainedContext } = head;
  const parts = [
    ...(name === undefined ? [] : [name]),
    architecture,
    ...(quantisation === undefined ? [] : [quantisation]),
    size(bytes),
    ...(trainedContext === undefined ? [] : [`trained for ${trainedContext.toLocaleString('en')} tokens`]),
  ];
  return [`  ${parts.join(', ')}`];
}

/** `CPU, 1 thread`. */
export function loadText({ load }: ModelReport): string | undefined {
  if (!load) return undefined;
  const { gpu, gpuLayers, layers, threads, flashAttention } = load;
  const where = gpu === false || gpuLayers === 0 ? 'CPU' : `${gpuLayers} of ${layers} layers on the GPU (${gpu})`;
  const attention = flashAttention === false ? 'without flash attention' : 'with flash attention where it can';
  return `${where}, ${threads} thread${threads === 1 ? '' : 's'}, ${attention}`;
}

function loadLines(report: ModelReport): string[] {
  const text = loadText(report);
  return text === undefined ? [] : [`  loaded on ${text}`];
}

function fitLines(where: string, fit: Fit | undefined, seats: number): string[] {
  if (!fit) return [];
  const { weights, perSeat, compute, checkpoints = 0, prefixCache = 0, grammars, total, usable } = fit;
  const saved = checkpoints > 0 ? `checkpoints ${size(checkpoints)}, ` : '';
  const cached = prefixCache > 0 ? `prefix cache up to ${size(prefixCache)} in /dev/shm, ` : '';
  const held = grammars ? `grammars up to ${size(grammars.stores + grammars.perSeat * seats)}, ` : '';
  return [
    `  ${where}: weights ${size(weights)}, KV ${size(perSeat)} per seat (${seats}: ${size(perSeat * seats)}), compute ${size(compute)}, ${saved}${cached}${held}` +
      `together ${size(total)} of ${size(usable)} that may be used`,
  ];
}

function sizeTable({ sizes }: ModelReport): string {
  const rows = sizes.map(({ contextPerSeat, perSeat, seats }) => [
    contextPerSeat.toLocaleString('en'),
    size(perSeat),
    seatsText(seats),
  ]);
  return columns([['CONTEXT PER SEAT', 'KV PER SEAT', 'SEATS THAT FIT'], ...rows]);
}

/** How many seats fit, followed by `fit`, and whether these are all that an engine can have. */
export function seatsText(seats: number, fit = ''): string {
  return seats < MOST_SEATS ? `${seats}${fit}` : `${MOST_SEATS}${fit}, the most that an engine can have`;
}

function indented(text: string): string {
  return text.replace(/^(?=.)/gm, '  ');
}
