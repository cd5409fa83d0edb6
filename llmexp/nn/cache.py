"""Keys and values of the tokens already seen, for generation.

Shapes: keys, values (batch, n_kv_heads, max_len, head_dim), static. A *slot* is an index along
``max_len``. Each row has its own length, so that rows may be prompts of different lengths,
left-padded (padding carries document id -1) or not, and a finished row may be given away.
"""

from __future__ import annotations

import torch

from llmexp.nn.visibility import Visibility, additive


class LayerCache:
    """The keys and values of one attention layer."""

    def __init__(
        self,
        batch: int,
        n_kv_heads: int,
        max_len: int,
        head_dim: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (batch, n_kv_heads, max_len, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def select(self, rows: torch.Tensor) -> None:
        """Keep ``rows`` (n,) int64, in that order; a row may occur several times."""
        self.keys, self.values = self.keys[rows], self.values[rows]


class Cache:
    """One :class:`LayerCache` a layer and the bookkeeping that they share.

    A forward pass calls :meth:`reserve` once and :meth:`append` once a layer.
    """

    def __init__(self, layers: list[LayerCache]) -> None:
        keys = layers[0].keys
        self.layers = layers
        self.batch, self.max_len, self.device = keys.shape[0], keys.shape[2], keys.device
        self.lengths: list[int] = [0] * self.batch
        self._doc_ids: torch.Tensor | None = None
        self._start: int | None = None
        self._slots: torch.Tensor | None = None
        self._used = 0

    @property
    def uniform(self) -> bool:
        """Whether all rows are equally long; then writing is a plain copy."""
        return len(set(self.lengths)) <= 1

    def next_positions(self, n: int) -> torch.Tensor:
        """Positions of the next ``n`` tokens of each row when nothing is padded: (batch, n) int64."""
        starts = torch.tensor(self.lengths, device=self.device)
        return starts[:, None] + torch.arange(n, device=self.device)

    def reserve(self, n: int, doc_ids: torch.Tensor | None, dtype: torch.dtype = torch.float32) -> Visibility:
        """Take the next ``n`` slots of each row; what those tokens may look at.

        ``doc_ids`` (batch, n) are the new tokens' documents; None means one document a row.
        ``dtype`` is that of the queries.

        Raises:
            ValueError: a row would exceed ``max_len``.
        """
        self._used = max(self.lengths) + n
        if self._used > self.max_len:
            raise ValueError(f"the cache holds {self.max_len} tokens a row, {self._used} are needed")
        self._start = self.lengths[0] if self.uniform else None
        self._slots = None if self._start is not None else self.next_positions(n)
        self._remember(n, doc_ids)
        visibility = self._visibility(n, dtype)
        self.lengths = [length + n for length in self.lengths]
        return visibility

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new (batch, n_kv_heads, n, head_dim) of ``layer``; all keys and values so far."""
        cache = self.layers[layer]
        self._write(cache.keys, keys)
        self._write(cache.values, values)
        return cache.keys[:, :, : self._used], cache.values[:, :, : self._used]

    def select(self, rows: torch.Tensor) -> None:
        """Keep ``rows`` (n,) int64: drops finished rows, or copies one prompt for several answers."""
        for layer in self.layers:
            layer.select(rows)
        self.lengths = [self.lengths[row] for row in rows.tolist()]
        self.batch = len(self.lengths)
        if self._doc_ids is not None:
            self._doc_ids = self._doc_ids[rows]

    def _remember(self, n: int, doc_ids: torch.Tensor | None) -> None:
        if doc_ids is None and self._doc_ids is None:
            return
        if self._doc_ids is None:
            self._doc_ids = torch.zeros(self.batch, self.max_len, dtype=torch.int32, device=self.device)
        if doc_ids is None:
            doc_ids = torch.zeros(self.batch, n, dtype=torch.int32, device=self.device)
        self._doc_ids.scatter_(1, self.next_positions(n), doc_ids.to(torch.int32))

    def _visibility(self, n: int, dtype: torch.dtype) -> Visibility:
        plain = self._start is not None and self._doc_ids is None
        if plain and (n == 1 or self._start == 0):
            return Visibility(mask=None, causal=n > 1)
        slots = torch.arange(self._used, device=self.device)
        queries = self.next_positions(n)
        mask = slots <= queries[:, :, None]
        if self._doc_ids is not None:
            known = self._doc_ids[:, : self._used]
            mask = mask & (known.gather(1, queries)[:, :, None] == known[:, None, :])
        return additive(mask[:, None], dtype)

    def _write(self, store: torch.Tensor, new: torch.Tensor) -> None:
        if self._start is not None:
            store[:, :, self._start : self._start + new.shape[2]] = new
            return
        rows = torch.arange(self.batch, device=self.device)[:, None]
        store[rows, :, self._slots] = new.transpose(1, 2).to(store.dtype)
