"""Prints a share of the picks as bytes: python -m trainers.data.latent_factors --size 1000000 --share 0/2."""

import sys

from trainers.data.cached.work_shares import share_parser
from trainers.data.latent_factors import Model, picks_of_share

if __name__ == "__main__":
    parser = share_parser("Print the picks of a part of the users.")
    parser.add_argument("--size", type=int, required=True)
    arguments = parser.parse_args()
    sys.stdout.buffer.write(picks_of_share(Model.of_size(arguments.size), *arguments.share).tobytes())
