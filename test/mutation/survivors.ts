/** Why a mutant of a line lives: what no case can tell. Found by a part of the line, since line numbers move. */
const REASONS: readonly (readonly [file: string, line: string, why: string])[] = [];

/** The reason for the survivors of a line; undefined when there is none. */
export function reasonFor(file: string, line: string): string | undefined {
  return REASONS.find(([name, part]) => name === file && line.includes(part))?.[2];
}
