/**
 * The words that the tests’ vocabulary has as whole tokens (vocabulary-words.json), chosen by hand; within a list the more frequent
 * first. Each item is one piece to the `qwen2` pre-tokenizer (letters with at most one other character before them, or punctuation
 * with line breaks after it), since otherwise no merge could join it.
 */
import { readFileSync } from 'node:fs';
import type lists from './vocabulary-words.json';

const FILE = new URL('../../../bench/models/vocabulary-words.json', import.meta.url);
const LISTS = JSON.parse(readFileSync(FILE, 'utf8')) as typeof lists;

/** English words; each gets a token with a space before it and one without. */
export const WORDS: readonly string[] = LISTS.words.split(' ');
/** Words that begin sentences, and the decision labels in other cases; with and without a space before them. */
export const CAPITALISED: readonly string[] = LISTS.capitalised.split(' ');
/** Marks that follow a word directly. */
export const MARKS: readonly string[] = LISTS.marks;
/** Pieces of JSON and code. */
export const SYNTAX: readonly string[] = LISTS.syntax;
/** Characters of more than one byte, so that replies have some; a token is always a whole character. */
export const LONG_CHARACTERS: readonly string[] = Array.from(LISTS.longCharacters);
