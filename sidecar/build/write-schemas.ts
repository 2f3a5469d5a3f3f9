/** Prints the module with the code of the schemas' checks; the build runs it and writes that (.ci/build.mjs). */
import { allSchemas, moduleText } from './written-schemas.js';

process.stdout.write(moduleText(await allSchemas()));
