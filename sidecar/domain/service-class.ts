/** Service classes and their weights, all above 0, so that none starves. Keys, gateways, metrics and pages name the class. */
export const CLASS_WEIGHTS = { interactive: 16, standard: 4, batch: 1 } as const;
export type ServiceClass = keyof typeof CLASS_WEIGHTS;

/** All classes, heaviest first. */
export const SERVICE_CLASSES = Object.keys(CLASS_WEIGHTS) as readonly ServiceClass[];

/** What a caller may ask for in place of the class of its key, in the words of OpenAI's API, and the class that it then has. */
export const TIER_CLASSES = { flex: 'batch', priority: 'interactive' } as const satisfies Record<string, ServiceClass>;
export type ServiceTier = keyof typeof TIER_CLASSES;

export const SERVICE_TIERS = Object.keys(TIER_CLASSES) as readonly ServiceTier[];

/** The tier in which a request is served; `default`: in the class of its key, at the price of its model. */
export type ServedTier = ServiceTier | 'default';

export const SERVED_TIERS: readonly ServedTier[] = ['default', ...SERVICE_TIERS];

/** The class of a weight: the highest class that it reaches. */
export function classOf(weight: number): ServiceClass {
  if (weight >= CLASS_WEIGHTS.interactive) return 'interactive';
  return weight >= CLASS_WEIGHTS.standard ? 'standard' : 'batch';
}
