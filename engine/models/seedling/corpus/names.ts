import type { Draw } from './draw.js';

const PEOPLE =
  `Anna Ben Clara David Elena Felix Grace Hugo Ines Jonas Kira Leo Mira Noah Olga Paul Rosa Samuel Tina Victor Wanda
Yusuf Zoe Adam Bella Carl Dora Emil Fatima George Hana Ivan Julia Karim Lena Marco Nina Oscar Petra Rami Sara Tom Uma Vera
Walter Yara Alice Bruno Cora Dina`.split(/\s+/);

const PLACES =
  `Paris Berlin Rome Oslo Madrid Lisbon Vienna Tokyo Cairo Lima Dublin Prague Athens London Boston Chicago Delhi Seoul
Warsaw Geneva Lyon Milan Porto Bergen Quito`.split(/\s+/);

const ITEMS =
  `lamp chair phone laptop table camera jacket kettle printer bike watch headset keyboard toaster backpack mirror sofa
drill tent router speaker blender carpet monitor umbrella`.split(/\s+/);

const DEVICES =
  `pump fan valve heater door light oven motor gate boiler alarm camera sensor window mixer printer freezer lock belt
cooler charger relay siren`.split(/\s+/);

const COLORS = ['red', 'blue', 'green', 'yellow', 'black', 'white', 'orange', 'brown', 'pink', 'gray'];

const ONSETS = ['b', 'd', 'f', 'g', 'k', 'l', 'm', 'n', 'p', 'r', 's', 't', 'v', 'z', 'br', 'tr', 'st'];
const VOWELS = ['a', 'e', 'i', 'o', 'u'];

/** A made-up word of two or three syllables. */
export function madeUp(draw: Draw): string {
  const syllables = Array.from({ length: draw.int(2, 3) }, () => draw.any(ONSETS) + draw.any(VOWELS));
  return syllables.join('') + (draw.chance(0.4) ? draw.any(['n', 'r', 's', 'l']) : '');
}

/** A person; a third of them made up, so that names are told by their place and not by heart. */
export function person(draw: Draw): string {
  if (draw.chance(0.35)) return capitalised(madeUp(draw));
  return draw.pick(PEOPLE);
}

/** Different people. */
export function people(draw: Draw, count: number): string[] {
  return distinct(count, () => person(draw));
}

export function place(draw: Draw): string {
  return draw.chance(0.2) ? capitalised(madeUp(draw)) : draw.pick(PLACES);
}

export function item(draw: Draw): string {
  return draw.pick(ITEMS);
}

export function items(draw: Draw, count: number): string[] {
  return draw.picks(ITEMS, count);
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
  return names;
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
