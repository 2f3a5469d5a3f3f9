/** The layers of docs/architecture.md: imports are checked by dependency-cruiser, what imports do not show by the syntax tree. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { cruise } from './support/cruise.js';
import { architectureRules, modules, pathOf, vendors } from './support/architecture-rules.js';
import { brokenSourceRules } from './support/source-rules.js';
import { sourceRoot } from './support/source-root.js';

t.test('the sources keep to the layers', async (t) => {
  const { files, violations } = await cruise(sourceRoot);
  t.strictSame(violations, []);
  t.ok(files.includes('sidecar/app/app.ts') && files.includes('test/architecture.test.ts'), 'the sources were read');
  for (const path of files) {
    if (/^(sidecar|engine)\//.test(path)) t.equal(modulesOf(path).length, 1, `${path} is in one module`);
    t.strictSame(brokenSourceRules(path, readFileSync(join(sourceRoot, path), 'utf8')), [], path);
  }
});

t.test('no module sees one of a higher layer', (t) => {
  const order = modules.map(({ name }) => name);
  for (const { name, sees } of modules) {
    for (const lower of sees)
      t.ok(order.indexOf(lower) >= 0 && order.indexOf(lower) < order.indexOf(name), `${name} sees ${lower}`);
  }
  t.end();
});

t.test('docs/architecture.md has each module in its table', (t) => {
  const page = readFileSync(join(sourceRoot, 'docs/architecture.md'), 'utf8');
  for (const { name } of modules) t.match(page, `| \`${name.endsWith('.ts') ? name : `${name}/`}\` `, name);
  t.end();
});

/** Each rule, and the least code that breaks it. `broken` is the import that must be found. */
const offences: readonly { rule: string; sources: Record<string, string>; broken: [from: string, to: RegExp] }[] = [
  ...modules.map(({ name, sees }) => {
    // No module sees the composition root but those above it, and none of these sees a test.
    const to = sees.includes('sidecar/app') || name === 'sidecar/app' ? 'test/support/fake.ts' : 'sidecar/app/app.ts';
    const from = name.endsWith('.ts') ? name : `${name}/x.ts`;
    const up = '../'.repeat(from.split('/').length - 1);
    return {
      rule: `layer: ${name}`,
      sources: {
        [from]: `import type { X } from '${up}${to.replace('.ts', '.js')}';\nexport type Y = X;\n`,
        [to]: 'export interface X { x: 1 }\n',
      },
      broken: [from, new RegExp(`^${to}$`)] as [string, RegExp],
    };
  }),
  ...Object.keys(vendors).map((name) => ({
    rule: `vendor: ${name}`,
    sources: { 'sidecar/api/chat.ts': `import type { X } from '${name}';\nexport type Y = X;\n` },
    broken: ['sidecar/api/chat.ts', new RegExp(name.replaceAll('.', '\\.'))] as [string, RegExp],
  })),
  {
    rule: 'of engine/llama the sidecar sees the vocabulary alone',
    sources: {
      'sidecar/prompts/models.ts': `import type { X } from '../../engine/llama/runtime.js';\nexport type Y = X;\n`,
      'engine/llama/runtime.ts': 'export interface X { x: 1 }\n',
    },
    broken: ['sidecar/prompts/models.ts', /^engine\/llama\/runtime\.ts$/],
  },
  {
    rule: 'an engine is used through its port',
    sources: {
      'sidecar/api/chat.ts': `import type { X } from '../engine-client/supervisor.js';\nexport type Y = X;\n`,
      'sidecar/engine-client/supervisor.ts': 'export interface X { x: 1 }\n',
    },
    broken: ['sidecar/api/chat.ts', /^sidecar\/engine-client\/supervisor\.ts$/],
  },
  {
    rule: 'no cycles',
    sources: {
      'sidecar/http/a.ts': `import type { B } from './b.js';\nexport interface A { b: B }\n`,
      'sidecar/http/b.ts': `import type { A } from './a.js';\nexport interface B { a: A }\n`,
    },
    broken: ['sidecar/http/a.ts', /^sidecar\/http\/b\.ts$/],
  },
  {
    rule: 'no native code in the sidecar',
    sources: {
      'sidecar/cli.ts': `import { a } from './prompts/client.js';\nexport const c = a;\n`,
      'sidecar/prompts/client.ts': `export { b as a } from '../../engine/llama/vocabulary.js';\nexport const d = 1;\n`,
      'engine/llama/vocabulary.ts': `import { getLlama } from 'node-llama-cpp';\nexport const b = getLlama;\n`,
    },
    broken: ['sidecar/cli.ts', /node-llama-cpp/],
  },
  {
    rule: 'OpenTelemetry is loaded when it is configured',
    sources: {
      'sidecar/app/compose-otlp.ts': `import { a } from '../telemetry/otlp/open.js';\nexport const b = a;\n`,
      'sidecar/telemetry/otlp/open.ts': `export const a = 1;\n`,
    },
    broken: ['sidecar/app/compose-otlp.ts', /otlp\/open/],
  },
  {
    rule: 'shipped code imports no test and no bench',
    sources: {
      'engine/main.ts': `const m = await import('../bench/load.js');\nexport const y = m;\n`,
      'bench/load.ts': `export const x = 1;\n`,
    },
    broken: ['engine/main.ts', /^bench\/load\.ts$/],
  },
  {
    rule: 'shipped code needs no development package',
    sources: {
      'sidecar/domain/errors.ts': `import { z } from 'zod';\nexport const y = z;\n`,
      'package.json': '{"devDependencies":{"zod":"1"}}',
      'node_modules/zod/package.json': '{"name":"zod","main":"index.js"}',
      'node_modules/zod/index.js': '',
    },
    broken: ['sidecar/domain/errors.ts', /zod/],
  },
];

t.test('each rule fires', async (t) => {
  t.strictSame(
    offences.map(({ rule }) => rule).sort(),
    (architectureRules.forbidden ?? []).map(({ name }) => name).sort(),
    'every rule has its offence',
  );
  for (const { rule, sources, broken } of offences) {
    const { violations } = await cruise(lay(t, sources));
    const [from, to] = broken;
    t.ok(
      violations.some((found) => found.rule === rule && found.from === from && to.test(found.to)),
      rule,
      { found: violations },
    );
  }
});

t.test('what is allowed does not fire', async (t) => {
  const root = lay(t, {
    'sidecar/http/server.ts': `import uWS from 'uWebSockets.js';\nimport type { C } from '../lib/clock.js';\nexport const s = (c: C) => [uWS, c];\n`,
    'sidecar/lib/clock.ts': `export interface C { now(): number }\n`,
    'engine/llama/runtime.ts': `import { getLlama } from 'node-llama-cpp';\nexport const r = getLlama;\n`,
    'test/sidecar/http/server.test.ts': `import { s } from '../../../sidecar/http/server.js';\nimport 'node-llama-cpp';\nexport const x = s;\n`,
  });
  t.strictSame((await cruise(root)).violations, []);
});

t.test('source rules fire, and only on what they are about', async (t) => {
  const barrel = `import { y } from './y.js';\nexport * from './x.js';\nexport { y };\n`;
  t.strictSame(brokenSourceRules('sidecar/http/index.ts', barrel), ['no barrels']);
  t.strictSame(brokenSourceRules('sidecar/http/x.ts', `export type { Y } from './y.js';\nexport const x = 1;\n`), []);
  for (const text of [
    'const x = process.env.HOME;',
    'x.y = process.env;',
    'process.env.X ??= process.env.Y;',
    "const x = process['env'];",
    'const x = globalThis.process?.env;',
    'const { env } = process;',
    "import { env } from 'node:process';",
    'const x = `it’s ${process.env.HOME}`;',
  ]) {
    t.strictSame(brokenSourceRules('sidecar/app/app.ts', text), ['environment in config.ts alone'], text);
    t.strictSame(brokenSourceRules('sidecar/config/config.ts', text), [], text);
  }
  t.strictSame(brokenSourceRules('engine/main.ts', "process.env['X'] = '1';"), []);
  t.strictSame(brokenSourceRules('sidecar/cli.ts', '// process.env\nprocess.exitCode = process.argv.length;'), []);
});

function modulesOf(path: string): string[] {
  return modules.map(({ name }) => name).filter((name) => new RegExp(pathOf(name)).test(path));
}

/** Writes sources into a folder of their own. */
function lay(t: Test, sources: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), 'ra-architecture-'));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(sources)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}
