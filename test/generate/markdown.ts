/** One row of a table. */
export function row(...columns: string[]): string {
  return `| ${columns.map((column) => column.replaceAll('|', '\\|')).join(' | ')} |`;
}

/** A value as code. */
export function code(value: unknown): string {
  return `\`${JSON.stringify(value)}\``;
}
