/** What a model file is, what it can be used for, and what of it fits on this machine: as an engine would find it. */
import { isDeepStrictEqual } from 'node:util';
import type { GgufFileInfo, Llama } from 'node-llama-cpp';
import type {
  Finding,
  Fit,
  HeadFacts,
  ModelReport,
  Question,
  SizeRow,
  SizingSetup,
} from '../../protocol/inspect-messages.js';
import { isPooling, type TemplateSettings } from '../../protocol/setup.js';
import { callFormatText } from '../../prompt/tool-use.js';
import { makeTemplate } from '../../prompt/template.js';
import { openLlama } from '../backend.js';
import { binariesOf } from './machine.js';
import { LlamaLog } from '../llama-log.js';
import { fileTemplates } from '../vocabulary.js';
import { computeThreads, coresProblem } from '../cores.js';
import { F16_KV, Q8_KV } from '../kv-types.js';
import { planLoad, WITHOUT_ITS_CHECKS } from '../load-plan.js';
import { beyondTrained } from '../model-tokens.js';
import { usesOf } from '../model-uses.js';
import { poolingProblem } from '../pooling.js';
import { freeMemory, roomForMemoryFiles, type Sizes } from '../memory/available.js';
import {
  savesToPages,
  withPrefixCache,
  withCheckpoints,
  estimateNeeds,
  type ContextPlan,
  type Needs,
  withDrafts,
  withGrammars,
  repackedBytes,
} from '../memory/estimate.js';
import { firstProblem, misfit, seatsThatFit, tooHeavy, totalOf, usableOf } from '../memory/verdict.js';
import { GgufInsights } from '../package.js';
import { readModelHead } from './head.js';

/** Contexts that the table shows, tokens; those past what the model was trained for are left out. */
const CONTEXTS = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];

/** Two seats show what one of them takes (estimate.ts). */
const LEAST_SEATS = 2;

/** Looks at one model, as far as it can be looked at. `progress`: bytes of weights loaded. Rejects when the backend is not there. */
export async function inspectModel(
  { setup, template, load, taken, memory, gpuMemory }: Question['model'],
  progress: (done: number, total: number) => void,
): Promise<ModelReport> {
  const read = await readModelHead(setup.file);
  if (read.kind === 'bad') return bare(undefined, [{ what: 'file', ok: false, needed: true, says: read.problem }]);
  const { head, info, tensors } = read;
  const findings: Finding[] = [{ what: 'file', ok: tensors > 0, needed: true, says: fileLine(head, tensors) }];
  if (tensors === 0) return bare(head, findings);
  const log = new LlamaLog();
  const llama = await openLlama(gpuMemory === undefined ? setup.gpu : 'auto', log);
  /** The card is another machine's, so its memory is computed here by the tensors' sizes. */
  const elsewhere = gpuMemory !== undefined && llama.gpu === false;
  const insights = await GgufInsights.from(info, llama);
  const known = insights.isSupportedByLlamaCpp;
  log.begin();
  const says = known ? head.architecture : `this llama.cpp does not know the architecture ${head.architecture}`;
  findings.push({ what: 'architecture', ok: known, needed: true, says });
  if (!known) return bare(head, findings);
  for (const line of beyondTrained(setup.contextPerSeat, head.trainedContext))
    findings.push({ what: 'context', ok: false, needed: false, says: line });
  if (isPooling(setup.kind)) findings.push(poolingFinding(info, setup.kind, setup.contextPerSeat));
  if (setup.cores !== undefined) findings.push(coresFinding(setup, setup.cores, memory === undefined));
  try {
    const planOf = (own: SizingSetup) => planLoad(elsewhere ? { gpu: 'cuda' } : llama, insights, own);
    const plan = await planOf(setup);
    const { gpuLayers, flashAttention } = plan;
    const loading = {
      ...binariesOf(llama),
      gpu: elsewhere ? 'assumed' : llama.gpu,
      threads: computeThreads(setup),
      gpuLayers,
      layers: insights.totalLayers,
      flashAttention,
    };
    const really = await freeMemory(llama);
    const free = {
      cpuRam: (memory ?? really.cpuRam) - taken.memory,
      gpuVram: (gpuMemory ?? really.gpuVram) - taken.gpuMemory,
    };
    const weights = elsewhere
      ? weightsElsewhere(insights, gpuLayers)
      : await insights.estimateModelResourceRequirementsV2({ gpuLayers });
    const estimate = (wanted: ContextPlan): Promise<Needs> =>
      elsewhere ? needsElsewhere(insights, weights, wanted) : estimateNeeds(insights, weights, wanted);
    const heavy = firstProblem(
      tooHeavy(weights.cpuRam, free.cpuRam, 'memory'),
      gpuLayers > 0 ? tooHeavy(weights.gpuVram, free.gpuVram, 'GPU memory') : undefined,
    );
    if (heavy !== undefined) {
      findings.push({ what: 'memory', ok: false, needed: true, says: heavy });
      return { ...bare(head, findings), load: loading };
    }
    // Not before: llama.cpp's reckoning of a context asserts what loading only finds.
    if (!load && setup.kind === 'chat') findings.push(callsFinding(info, template));
    if (load) {
      // The memory to reckon with may be another machine's, and a GPU's share of the weights comes here too.
      const whole = await insights.estimateModelResourceRequirementsV2({ gpuLayers: 0 });
      const here = tooHeavy(whole.cpuRam, really.cpuRam, 'memory');
      if (here === undefined) findings.push(...(await loaded(llama, setup, template, head.bytes, progress)));
      else findings.push({ what: 'tensors', ok: false, needed: false, says: `they were not loaded here: ${here}` });
    }
    const repacked =
      gpuLayers > 0 ? 0 : Math.min(weights.cpuRam, repackedBytes(info.fullTensorInfo ?? [], llama.systemInfo));
    const vocabulary = info.metadata.tokenizer.ggml.tokens.length;
    const withTexts = (bare: Needs): Needs =>
      withDrafts(withGrammars(bare, setup.kind, vocabulary), setup, plan, vocabulary);
    const estimated = withTexts(await estimate(plan));
    const saving = withCheckpoints(estimated, plan.seats, !plan.truncatable, setup.checkpoints?.bytes, free.cpuRam);
    const room = savesToPages(gpuLayers, setup) ? Infinity : roomForMemoryFiles()?.total;
    const needs = withPrefixCache(saving, setup, free.cpuRam, room);
    // Of the caches those alone whose bytes are set: others take what the seats leave.
    const { checkpoints, prefixCache } = setup;
    const withCaches = (bare: Needs): Needs => {
      const calls = withTexts(bare);
      const appendOnly = checkpoints?.bytes !== undefined && !plan.truncatable;
      const saved = withCheckpoints(calls, plan.seats, appendOnly, checkpoints?.bytes, free.cpuRam);
      if (prefixCache?.bytes === undefined) return saved;
      return withPrefixCache(saved, setup, free.cpuRam, room);
    };
    const fit = memoryFinding(needs, plan, free);
    const half =
      !fit.ok && setup.kind === 'chat' && isDeepStrictEqual(plan.kv, F16_KV)
        ? await planOf({ ...setup, kv: Q8_KV }).catch(() => undefined)
        : undefined;
    const helps = half && memoryFinding(withCaches(await estimate(half)), half, free).ok;
    findings.push(helps ? { ...fit, says: `${fit.says}; or set kv.keys and kv.values to q8_0: then it fits` } : fit);
    return {
      head,
      load: loading,
      memory: fitOf(needs.cpu, plan.seats, free.cpuRam, repacked),
      gpuMemory: gpuLayers > 0 ? fitOf(needs.gpu, plan.seats, free.gpuVram, weights.gpuVram) : undefined,
      sizes: await sizeTable(estimate, plan, { free, withCaches, trained: head.trainedContext }),
      findings,
    };
  } catch (error) {
    const { message } = await log.failure(error);
    findings.push({ what: 'tensors', ok: false, needed: true, says: message });
    return bare(head, findings);
  } finally {
    await llama.dispose();
  }
}

function bare(head: HeadFacts | undefined, findings: readonly Finding[]): ModelReport {
  return { head, load: undefined, memory: undefined, gpuMemory: undefined, sizes: [], findings };
}

function fileLine({ quantisation }: HeadFacts, tensors: number): string {
  if (tensors === 0) return 'the file holds a vocabulary and no weights';
  return `GGUF, ${tensors} tensors${quantisation === undefined ? '' : `, ${quantisation}`}`;
}

/** `here`: it is to run on this machine, not on one whose memory was named. */
function coresFinding(setup: SizingSetup, cores: string, here: boolean): Finding {
  const problem = coresProblem(setup);
  return { what: 'cores', ok: problem === undefined, needed: here, says: problem ?? `it computes on ${cores}` };
}

/** The weights' split between the host and a GPU that this machine lacks: llama.cpp's own estimate needs the device. */
function weightsElsewhere(insights: GgufInsights, gpuLayers: number): Sizes {
  // eslint-disable-next-line @typescript-eslint/no-deprecated
  return insights.estimateModelResourceRequirements({ gpuLayers, gpuSupportsMmap: false });
}

/** What the model takes beside its weights on a CPU, of which a GPU takes the part of the layers that are on it. */
async function needsElsewhere(insights: GgufInsights, weights: Sizes, plan: ContextPlan): Promise<Needs> {
  const { cpu } = await estimateNeeds(insights, weights, { ...plan, gpuLayers: 0 });
  const share = plan.gpuLayers / insights.totalLayers;
  const part = (bytes: number, where: Sizes[keyof Sizes], share: number): Needs['cpu'] => ({
    weights: where,
    perSeat: cpu.perSeat * share,
    compute: bytes * share,
  });
  return { cpu: part(cpu.compute, weights.cpuRam, 1 - share), gpu: part(cpu.compute, weights.gpuVram, share) };
}

/** Loads the weights onto no GPU, where an engine may be at work, and looks at what the model can be used for. */
async function loaded(
  llama: Llama,
  setup: SizingSetup,
  template: TemplateSettings | undefined,
  bytes: number,
  progress: (done: number, total: number) => void,
): Promise<Finding[]> {
  const model = await llama.loadModel({
    modelPath: setup.file,
    gpuLayers: 0,
    ...WITHOUT_ITS_CHECKS,
    onLoadProgress: (share) => progress(Math.round(share * bytes), bytes),
  });
  try {
    const size = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
    const { chat, tools, decisions } = usesOf(model, template);
    return [
      { what: 'tensors', ok: true, needed: true, says: 'all of them are in the file and were loaded' },
      tokenizerFinding(model.tokenize('The quick brown fox.').length, size),
      use('chat', chat, 'its template makes prompts', setup.kind === 'chat'),
      { what: 'tool calls', ok: tools.native || tools.chosen, needed: false, says: tools.says },
      use('decisions', decisions, 'each label is one token after its template', setup.kind === 'decision'),
    ];
  } finally {
    await model.dispose();
  }
}

/** From the header alone. */
function poolingFinding(info: GgufFileInfo, kind: 'embedding' | 'rerank', contextPerSeat: number): Finding {
  const problem = poolingProblem(info, kind, contextPerSeat);
  return kind === 'rerank'
    ? use('rerank', problem, 'its head scores pairs', true)
    : use('embeddings', problem, 'its pooling makes one vector of each input', true);
}

/** From the header alone. */
function callsFinding(info: GgufFileInfo, { chatTemplate, toolFormat }: TemplateSettings = {}): Finding {
  const own = fileTemplates(info.metadata);
  const templateOf = (source: string | undefined) =>
    source === undefined ? undefined : makeTemplate(source, { bos: '', eos: '' }, toolFormat);
  const plain = templateOf(chatTemplate ?? own.chatTemplate);
  const offering = chatTemplate === undefined ? templateOf(own.toolTemplate) : undefined;
  const made = plain?.kind === 'ok' && offering?.kind === 'ok' ? offering : plain;
  if (made?.kind !== 'ok') {
    const says = made?.problem ?? 'the file has no chat template';
    return { what: 'tool calls', ok: false, needed: false, says };
  }
  const { native, chosen, says } = callFormatText(made.template.tools);
  return { what: 'tool calls', ok: native || chosen, needed: false, says };
}

function tokenizerFinding(tokens: number, size: number): Finding {
  const ok = tokens > 0;
  const says = ok ? `${size.toLocaleString('en')} tokens` : 'it makes no tokens of plain text';
  return { what: 'tokenizer', ok, needed: true, says };
}

function use(what: Finding['what'], problem: string | undefined, fine: string, needed: boolean): Finding {
  return { what, ok: problem === undefined, needed, says: problem ?? fine };
}

function memoryFinding({ cpu, gpu }: Needs, plan: ContextPlan, free: Sizes): Finding {
  const problem = firstProblem(
    misfit(cpu, plan, free.cpuRam, 'memory'),
    plan.gpuLayers > 0 ? misfit(gpu, plan, free.gpuVram, 'GPU memory') : undefined,
  );
  const { seats, contextPerSeat } = plan;
  const fine = `${seats} seats of ${contextPerSeat.toLocaleString('en')} tokens fit`;
  return { what: 'memory', ok: problem === undefined, needed: true, says: problem ?? fine };
}

function fitOf(need: Needs['cpu'], seats: number, free: number, repacked: number): Fit {
  return { ...need, repacked, total: totalOf(need, seats), usable: usableOf(free) };
}

/** The configured context's row and those of {@link CONTEXTS}, by length. */
async function sizeTable(
  estimate: (wanted: ContextPlan) => Promise<Needs>,
  plan: ContextPlan,
  {
    free,
    withCaches,
    trained = Infinity,
  }: { free: Sizes; withCaches: (needs: Needs) => Needs; trained: number | undefined },
): Promise<SizeRow[]> {
  const contexts = new Set([plan.contextPerSeat, ...CONTEXTS.filter((tokens) => tokens <= trained)]);
  const rows: SizeRow[] = [];
  for (const contextPerSeat of [...contexts].sort((a, b) => a - b)) {
    const seats = Math.max(LEAST_SEATS, plan.seats);
    const { cpu, gpu } = withCaches(await estimate({ ...plan, seats, contextPerSeat }));
    const onCpu = seatsThatFit(cpu, usableOf(free.cpuRam));
    const onGpu = plan.gpuLayers > 0 ? seatsThatFit(gpu, usableOf(free.gpuVram)) : Infinity;
    rows.push({ contextPerSeat, perSeat: cpu.perSeat + gpu.perSeat, seats: Math.min(onCpu, onGpu) });
  }
  return rows;
}
