import type { Draw } from './draw.js';
import { WORDINGS } from './wordings.js';

const listOf = (words: string): readonly string[] => words.split(' ');
const PEOPLE = listOf(WORDINGS.names.people);
const PLACES = listOf(WORDINGS.names.places);
const ITEMS = listOf(WORDINGS.names.items);
const DEVICES = listOf(WORDINGS.names.devices);
/** Further words, for training alone: a model that meets few words finds those by heart, and not whatever word it is asked for. */
const MORE_THINGS = listOf(WORDINGS.names.moreThings);
const MORE_PEOPLE = listOf(WORDINGS.names.morePeople);
const MORE_PLACES = listOf(WORDINGS.names.morePlaces);

const COLORS = ['red', 'blue', 'green', 'yellow', 'black', 'white', 'orange', 'brown', 'pink', 'gray'];

const ONSETS = ['b', 'd', 'f', 'g', 'k', 'l', 'm', 'n', 'p', 'r', 's', 't', 'v', 'z', 'br', 'tr', 'st'];
const VOWELS = ['a', 'e', 'i', 'o', 'u'];

/** A made-up word of two or three syllables. */
export function madeUp(draw: Draw): string {
  const syllables = Array.from({ length: draw.int(2, 3) }, () => draw.any(ONSETS) + draw.any(VOWELS));
  return syllables.join('') + (draw.chance(0.4) ? draw.any(['n', 'r', 's', 'l']) : '');
}

/** Half of training's words are of a longer list, which evaluation has no part in. */
function more(draw: Draw, list: readonly string[]): string | undefined {
  return draw.split === 'train' && draw.chance(0.5) ? draw.any(list) : undefined;
}

/** The words drawn, in training some of them replaced; all different. */
function mixed(draw: Draw, words: readonly string[], list: readonly string[]): string[] {
  return words.reduce<string[]>((found, word) => {
    const other = more(draw, list) ?? word;
    return [...found, found.includes(other) || words.includes(other) ? word : other];
  }, []);
}

/** A person; a third of them made up, so that names are told by their place and not by heart. */
export function person(draw: Draw): string {
  const other = more(draw, MORE_PEOPLE);
  if (other !== undefined) return other;
  if (draw.chance(0.35)) return capitalised(madeUp(draw));
  return draw.pick(PEOPLE);
}

/** Different people. */
export function people(draw: Draw, count: number): string[] {
  return distinct(count, () => person(draw));
}

export function place(draw: Draw): string {
  const other = more(draw, MORE_PLACES);
  if (other !== undefined) return other;
  return draw.chance(0.2) ? capitalised(madeUp(draw)) : draw.pick(PLACES);
}

export function item(draw: Draw): string {
  return more(draw, MORE_THINGS) ?? draw.pick(ITEMS);
}

export function items(draw: Draw, count: number): string[] {
  return mixed(draw, draw.picks(ITEMS, count), MORE_THINGS);
}

/** Different devices, now and then with a number or a room as people name them. */
export function devices(draw: Draw, count: number): string[] {
  const names = draw.picks(DEVICES, count);
  if (names.length < count)
    names.push(
      ...draw.some(
        DEVICES.filter((name) => !names.includes(name)),
        count - names.length,
      ),
    );
  return mixed(draw, names, MORE_THINGS);
}

export function color(draw: Draw): string {
  return draw.any(COLORS);
}

export function colors(draw: Draw, count: number): string[] {
  return draw.some(COLORS, count);
}

export function capitalised(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/** `count` different results of `make`, which must have that many. */
export function distinct(count: number, make: () => string): string[] {
  const found = new Set<string>();
  while (found.size < count) found.add(make());
  return [...found];
}

/** `{item}`, `{name}`, `{place}`, `{order}`, `{amount}`, `{days}` and `{color}` in a wording, filled in. */
export function filled(draw: Draw, text: string): string {
  return text.replace(/\{(\w+)\}/g, (whole, slot: string) => {
    switch (slot) {
      case 'item':
        return item(draw);
      case 'name':
        return person(draw);
      case 'place':
        return place(draw);
      case 'order':
        return String(draw.int(1000, 99_999));
      case 'amount':
        return String(draw.int(5, 300));
      case 'days':
        return String(draw.int(2, 20));
      case 'color':
        return color(draw);
      default:
        return whole;
    }
  });
}
