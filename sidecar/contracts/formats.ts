import { isImageUrl, isUri } from './urls.js';

/** The formats that our schemas name: a test of the text, and the requirement as a predicate. */
export const FORMATS: Readonly<Record<string, { validate: (text: string) => boolean; message: string }>> = {
  'image-url': { validate: isImageUrl, message: 'must be an https or data URL' },
  uri: { validate: isUri, message: 'must be a URI' },
};
