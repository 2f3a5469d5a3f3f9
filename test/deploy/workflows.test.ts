/** The workflows: each change is tested; all that is published is tested first, attested, and made by `make dist`. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseYaml } from '@redocly/openapi-core';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';

interface Step {
  readonly id?: string;
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}

interface Job {
  readonly needs?: string;
  readonly permissions: Readonly<Record<string, string>>;
  readonly steps: readonly Step[];
}

const text = readFileSync(join(sourceRoot, '.github/workflows/release.yml'), 'utf8');
const { permissions, jobs } = parseYaml(text) as {
  readonly permissions: object;
  readonly jobs: Readonly<Record<string, Job>>;
};

/** The step of a job that uses an action, whatever its version. */
function step(
  { steps }: Job,
  action: string,
): { readonly at: number; readonly with: Readonly<Record<string, unknown>> } {
  const at = steps.findIndex(({ uses }) => uses?.startsWith(`${action}@`));
  if (at < 0) throw new Error(`no step uses ${action}`);
  return { at, with: steps[at]?.with ?? {} };
}

t.test('what publishes waits for the long tests, and has no more rights than it needs', async (t) => {
  t.strictSame(permissions, {});
  t.strictSame(Object.keys(jobs).sort(), ['image', 'package', 'test']);
  t.ok(jobs['test']?.steps.some(({ run }) => run === 'make test-long'));
  t.strictSame(jobs['test']?.permissions, { contents: 'read' });
  const signs = { 'id-token': 'write', attestations: 'write' };
  t.strictSame(jobs['package']?.permissions, { contents: 'write', ...signs });
  t.strictSame(jobs['image']?.permissions, { contents: 'read', packages: 'write', ...signs });
  t.equal(jobs['image']?.needs, 'test');
  t.equal(jobs['package']?.needs, 'image', 'a release is made last');
  const named = jobs['test']?.steps.findIndex(({ run = '' }) => /package\.json.*\$GITHUB_REF_NAME/.test(run)) ?? -1;
  const tested = jobs['test']?.steps.findIndex(({ run }) => run === 'make test-long') ?? -1;
  t.ok(0 <= named && named < tested, 'a tag that is not the version ends the release before the tests');
});

t.test('the package and its SBOM are attested before they are published', async (t) => {
  const job = jobs['package']!;
  const made = job.steps.findIndex(({ run }) => run === 'make dist IMAGE=no');
  const provenance = step(job, 'actions/attest-build-provenance');
  const sbom = step(job, 'actions/attest-sbom');
  const published = job.steps.findIndex(({ run }) => run?.startsWith('gh release create'));
  t.ok(0 <= made && made < provenance.at && provenance.at < sbom.at && sbom.at < published);
  const attested = ['dist/release/*.tgz', 'dist/release/sbom.cdx.json', 'dist/release/SHA256SUMS'];
  t.equal(provenance.with['subject-path'], `${attested.join('\n')}\n`);
  t.strictSame(sbom.with, { 'subject-path': 'dist/release/*.tgz', 'sbom-path': 'dist/release/sbom.cdx.json' });
  t.match(job.steps[published]?.run, /dist\/release\/\*/);
});

t.test('each target of the Dockerfile is started, then published and attested by its digest', async (t) => {
  const job = jobs['image']! as Job & { readonly strategy: { readonly matrix: { readonly backend: string[] } } };
  const dockerfile = readFileSync(join(sourceRoot, 'deploy/docker/Dockerfile'), 'utf8');
  for (const target of job.strategy.matrix.backend) t.match(dockerfile, new RegExp(`^FROM \\S+ AS ${target}$`, 'm'));
  const both = { file: 'deploy/docker/Dockerfile', target: '${{ matrix.backend }}' };
  const tried = step(job, 'docker/build-push-action');
  t.match(tried.with, { ...both, load: true, tags: 'ra-sidecar:${{ matrix.backend }}' });
  const started = job.steps.findIndex(({ run }) => /^docker run .* "ra-sidecar:\$BACKEND" doctor$/.test(run ?? ''));
  const pushed = job.steps.findIndex(({ id }) => id === 'build');
  t.ok(tried.at < started && started < pushed, 'before it is pushed');
  const build = job.steps[pushed]?.with ?? {};
  t.match(build, { ...both, push: true, sbom: true });
  const attested = step(job, 'actions/attest-build-provenance').with;
  t.equal(attested['subject-digest'], '${{ steps.build.outputs.digest }}');
  t.ok(String(build['tags']).startsWith(String(attested['subject-name'])), 'the image that was pushed');
});

t.test(
  'each change runs .ci/run, and each night the long tests on every Node that runs it, real peers and native code',
  async (t) => {
    const jobOf = (file: string, name: string): Job =>
      (parseYaml(readFileSync(join(sourceRoot, '.github/workflows', file), 'utf8')) as { jobs: Record<string, Job> })
        .jobs[name]!;
    t.ok(jobOf('ci.yml', 'test').steps.some(({ run }) => run === '.ci/run'));
    const nightly = jobOf('nightly.yml', 'test-long') as Job & {
      readonly strategy: { readonly matrix: { node: number[] } };
    };
    const { engines } = JSON.parse(readFileSync(join(sourceRoot, 'package.json'), 'utf8')) as {
      engines: { node: string };
    };
    const majors = [...engines.node.matchAll(/\^(\d+)\./g)].map(([, major]) => Number(major));
    t.strictSame(nightly.strategy.matrix.node, majors);
    t.ok(nightly.steps.some(({ run }) => run === 'make test-long'));
    t.ok(
      jobOf('nightly.yml', 'e2e').steps.some(({ run }) => run === 'make e2e'),
      'and real peers, and the sandbox',
    );
    const native = jobOf('nightly.yml', 'native').steps.flatMap(({ run }) => run ?? []);
    t.strictSame(native.slice(-2), ['make engine-native', 'make test'], 'and the native addon');
  },
);

t.test('each action is pinned to a commit, with the version beside it, since a tag can be moved', async (t) => {
  const folder = join(sourceRoot, '.github/workflows');
  const used = readdirSync(folder).flatMap((file) => readFileSync(join(folder, file), 'utf8').match(/uses: .*/g) ?? []);
  t.ok(used.length >= 16);
  for (const line of used) t.match(line, /^uses: [a-z-]+\/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
});
