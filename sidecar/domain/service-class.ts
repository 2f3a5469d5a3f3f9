/**
 * Service classes and their weights when seats are shared. Every class has a weight above 0, so none starves. Keys and
 * gateways name the class, the seat queue uses the weight, and metrics and pages name the class again.
 */
export const CLASS_WEIGHTS = { interactive: 16, standard: 4, batch: 1 } as const;
export type ServiceClass = keyof typeof CLASS_WEIGHTS;

/** All classes, heaviest first. */
export const SERVICE_CLASSES = Object.keys(CLASS_WEIGHTS) as readonly ServiceClass[];

/** The class of a weight: the highest class that it reaches. */
export function classOf(weight: number): ServiceClass {
  if (weight >= CLASS_WEIGHTS.interactive) return 'interactive';
  return weight >= CLASS_WEIGHTS.standard ? 'standard' : 'batch';
}
