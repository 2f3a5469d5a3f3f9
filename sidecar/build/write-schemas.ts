/** Run by the build, after the compiler. */
import { writeSchemas } from './written-schemas.js';

await writeSchemas();
