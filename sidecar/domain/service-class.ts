/**
 * Service classes and their shares of the seats: weights, so that none of them starves another. Keys and gateways name the
 * class, the seat queue goes by the weight, metrics and pages name the class again.
 */
export const CLASS_WEIGHTS = { interactive: 16, standard: 4, batch: 1 } as const;
export type ServiceClass = keyof typeof CLASS_WEIGHTS;

/** All classes, heaviest first. */
export const SERVICE_CLASSES = Object.keys(CLASS_WEIGHTS) as readonly ServiceClass[];

/** What a weight is called: the highest class that it reaches. */
export function classOf(weight: number): ServiceClass {
  if (weight >= CLASS_WEIGHTS.interactive) return 'interactive';
  return weight >= CLASS_WEIGHTS.standard ? 'standard' : 'batch';
}
