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

/** Further words, for training alone: a model that meets few words finds those by heart, and not whatever word it is asked for. */
const MORE_THINGS =
  `anchor apron basket bottle bucket candle carton cushion dagger easel faucet funnel gasket goblet hammock hinge icebox inkwell
jigsaw jug kayak kennel ladle lantern lever magnet mallet mattress napkin nozzle oar organ paddle pallet pebble pencil pillow pistol
plow quilt radar razor ribbon rudder saddle scarf shovel skate sponge spoon stapler stove sword tablet tarp teapot thermos throttle
ticket tractor trolley trumpet tumbler turbine vacuum vase vest violin wagon wallet wheel whistle wrench zipper antenna battery blower
bracket cable circuit clamp clutch crane dimmer engine feeder filter furnace gauge grinder hoist jack lift pipe piston plug press pulley
pylon rotor scanner screen shaft shutter signal socket spring switch tank timer tower tube winch wire`.split(/\s+/);

const MORE_PEOPLE =
  `Abel Agnes Albert Amir Anton Astrid Barbara Beatrix Boris Camille Cecil Chen Dagmar Darius Diego Edith Edgar Elsa Enzo Farah Fiona
Florian Freya Gita Gustav Harald Helga Ilse Imran Ingrid Jasper Joana Kasper Katja Laszlo Liam Luisa Magnus Malik Marta Mehmet Milos
Nadia Nils Oksana Otto Pavel Priya Quentin Ralf Ramona Ricardo Rufus Selma Sven Tamara Theo Ulrich Ursula Valentin Viola Wilma Xenia
Yannick Zahra`.split(/\s+/);

const MORE_PLACES =
  `Aarhus Algiers Ankara Antwerp Bamako Bangkok Basel Belfast Bilbao Bogota Bremen Calgary Cardiff Cologne Dakar Denver Dresden Essen
Florence Genoa Ghent Graz Hamburg Hanoi Havana Jakarta Kiel Krakow Lagos Leipzig Lucerne Malmo Manila Marseille Miami Montreal Munich
Nairobi Naples Odessa Osaka Palermo Perth Riga Rotterdam Salzburg Santiago Seville Sofia Tallinn Toledo Turin Utrecht Valencia Venice
Wellington Zagreb Zurich`.split(/\s+/);

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
