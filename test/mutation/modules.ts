/**
 * Loads TypeScript modules from a folder into this process any number of times: a mutant of a schema takes effect while
 * its module is evaluated, and Node keeps an ES module forever. Each file is transpiled once; each {@link Modules.load}
 * evaluates it again.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, normalize } from 'node:path';
import { pathToFileURL } from 'node:url';
import { compileFunction } from 'node:vm';
import ts from 'typescript';

type Evaluate = (exports: object, require: (specifier: string) => unknown, moduleUrl: string) => void;

export class Modules {
  readonly #root: string;
  readonly #fresh: (path: string) => boolean;
  readonly #packages: NodeJS.Require;
  readonly #code = new Map<string, Evaluate>();
  readonly #kept = new Map<string, object>();

  /** `root`: the base of paths. `fresh`: whether a module is evaluated again; others are kept from the first time. */
  constructor(root: string, fresh: (path: string) => boolean) {
    this.#root = root;
    this.#fresh = fresh;
    this.#packages = createRequire(join(root, 'package.json'));
  }

  /** Evaluates a module and all of its imports. `replaced` replaces packages by name. */
  load(path: string, replaced: ReadonlyMap<string, object>): void {
    const loaded = new Map<string, object>();
    const evaluate = (file: string): object => {
      const modules = this.#fresh(file) ? loaded : this.#kept;
      const done = modules.get(file);
      if (done !== undefined) return done;
      const exports = {};
      modules.set(file, exports);
      const required = (specifier: string): unknown =>
        specifier.startsWith('.')
          ? evaluate(normalize(join(dirname(file), specifier)).replace(/\.js$/, '.ts'))
          : (replaced.get(specifier) ?? this.#packages(specifier));
      this.#compiled(file)(exports, required, pathToFileURL(join(this.#root, file)).href);
      return exports;
    };
    evaluate(path);
  }

  #compiled(path: string): Evaluate {
    const known = this.#code.get(path);
    if (known !== undefined) return known;
    // A function’s text has no `import.meta`.
    const text = readFileSync(join(this.#root, path), 'utf8').replaceAll('import.meta.url', 'moduleUrl');
    const { outputText } = ts.transpileModule(text, {
      fileName: path,
      compilerOptions: {
        target: ts.ScriptTarget.ES2022,
        module: ts.ModuleKind.CommonJS,
        esModuleInterop: true,
      },
    });
    const evaluate = compileFunction(outputText, ['exports', 'require', 'moduleUrl'], { filename: path }) as Evaluate;
    this.#code.set(path, evaluate);
    return evaluate;
  }
}
