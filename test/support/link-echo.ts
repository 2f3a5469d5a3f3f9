/** Sends back what arrives over its link, and ends with its parent. */
import { Link } from '../../engine/protocol/link.js';

const link = Link.toParent({
  message: (raw) => {
    if (raw === undefined) process.exit(4);
    link.send(raw as object);
  },
  closed: () => process.exit(0),
});
