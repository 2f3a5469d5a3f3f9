/** The refusals of requests with images. */
import { contractError, type ContractError } from '../domain/errors.js';

export function noVision(param: string): ContractError {
  return contractError('bad_request', `${param} is an image, and this model has no vision. Send text parts only.`, {
    param,
  });
}

export function imageTooLong(param: string, tokens: number, most: number): ContractError {
  return contractError(
    'bad_request',
    `${param} has an image of ${tokens} tokens; at most ${most} are taken. Send a smaller one.`,
    {
      param,
    },
  );
}

export function imageUnreadable(param: string): ContractError {
  return contractError('bad_request', `${param} has an image that cannot be decoded: its data is damaged.`, { param });
}

export function imageFailed(): ContractError {
  return contractError('bad_gateway', 'An image of this request could not be processed. Try again shortly.');
}
