"""Token shards and what reads them: writing, packing, mixtures, the data order, typed batches."""
