import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { cruise as dependencyCruise, type IModule } from 'dependency-cruiser';
import { architectureRules } from './architecture-rules.js';

/** One violation: the rule’s name and the two ends of the import. */
export interface Violation {
  readonly rule: string;
  readonly from: string;
  readonly to: string;
}

/**
 * Checks all imports below `root` (types included) against the layers, but those of tests. `files`: all sources of the repository that
 * were read.
 */
export async function cruise(root: string): Promise<{ files: string[]; violations: Violation[] }> {
  const folders = ['sidecar', 'engine', 'bench', 'test'].filter((folder) => existsSync(join(root, folder)));
  const { output } = await dependencyCruise(
    folders,
    {
      baseDir: root,
      validate: true,
      ruleSet: architectureRules,
      tsPreCompilationDeps: true,
      doNotFollow: { path: 'node_modules' },
      // No file imports a test, so a test is in no cycle, and no other rule is about what it imports.
      exclude: { path: '^dist/|/\\.cache/|\\.(test|e2e)\\.ts$' },
      combinedDependencies: true,
      // Who imports each file, and what none imports, which no rule asks for.
      skipAnalysisNotInRules: true,
    },
    { extensions: ['.ts', '.js'], conditionNames: ['types', 'import', 'node'], exportsFields: ['exports'] },
  );
  if (typeof output === 'string') throw new TypeError('the cruise gave text');
  return {
    files: output.modules
      .map((module: IModule) => module.source)
      .filter((source) => source.endsWith('.ts') && !source.includes('node_modules/')),
    violations: output.summary.violations.map(({ rule, from, to }) => ({ rule: rule.name, from, to })),
  };
}
