/** Rules that imports alone do not show: read from the syntax tree of one file. */
import type TypeScript from 'typescript';
import { ts } from './typescript.js';

/** The only files that may read the process's environment: the settings in it, and what children get of it. */
const ENVIRONMENT_READERS = ['sidecar/config/config.ts', 'sidecar/lib/child-process.ts'];

/** Names of the rules that `text`, the source of `path`, breaks. */
export function brokenSourceRules(path: string, text: string): string[] {
  const mayRead = /^(sidecar|engine)\//.test(path) && !ENVIRONMENT_READERS.includes(path) && text.includes('process');
  // Parsing a file takes longer than finding that it cannot break a rule.
  if (!mayRead && !/\bexport\b[^;]*\bfrom\b/.test(text)) return [];
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const broken: string[] = [];
  if (isBarrel(source)) broken.push('no barrels');
  if (mayRead && readsEnvironment(source)) broken.push('environment in its two readers alone');
  return broken;
}

/** A file that only exports what others export. */
function isBarrel({ statements }: TypeScript.SourceFile): boolean {
  return (
    statements.some(ts.isExportDeclaration) &&
    statements.every((statement) => ts.isExportDeclaration(statement) || ts.isImportDeclaration(statement))
  );
}

/**
 * `process.env` in any spelling: a property, an index, a pattern, or an import of node:process. Setting one variable
 * for a library is allowed.
 */
function readsEnvironment(node: TypeScript.Node): boolean {
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken) {
    const { left, right } = node;
    if (ts.isPropertyAccessExpression(left) || ts.isElementAccessExpression(left)) {
      if (ts.isPropertyAccessExpression(left.expression)) return readsEnvironment(right);
    }
  }
  if (ts.isPropertyAccessExpression(node) && isProcess(node.expression) && node.name.text === 'env') return true;
  if (ts.isElementAccessExpression(node) && isProcess(node.expression)) return true;
  if (ts.isVariableDeclaration(node) && ts.isObjectBindingPattern(node.name) && isProcess(node.initializer))
    return true;
  if (ts.isImportDeclaration(node) && ts.isStringLiteral(node.moduleSpecifier)) {
    if (/^(node:)?process$/.test(node.moduleSpecifier.text)) return true;
  }
  return ts.forEachChild(node, (child) => readsEnvironment(child) || undefined) ?? false;
}

/** `process` or `globalThis.process`. */
function isProcess(node: TypeScript.Expression | undefined): boolean {
  if (!node) return false;
  if (ts.isParenthesizedExpression(node)) return isProcess(node.expression);
  return ts.isPropertyAccessExpression(node)
    ? node.name.text === 'process'
    : ts.isIdentifier(node) && node.text === 'process';
}
