import t from 'tap';
import { CLASS_WEIGHTS, classOf, SERVICE_CLASSES } from '../../../sidecar/domain/service-class.js';

t.test('a weight belongs to the highest class that it reaches', async (t) => {
  t.same([1, 3, 4, 16, 20].map(classOf), ['batch', 'batch', 'standard', 'interactive', 'interactive']);
  t.same(
    SERVICE_CLASSES.map((name) => classOf(CLASS_WEIGHTS[name])),
    SERVICE_CLASSES,
  );
});
