/* Callable versions of what DPDK's headers offer only as inline functions and macros. */

#include "inlined.h"

int inlined_rte_errno(void)
{
	return rte_errno;
}

unsigned int inlined_rte_lcore_id(void)
{
	return rte_lcore_id();
}

uint16_t inlined_rte_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t inlined_rte_eth_tx_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_prepare(port, queue, mbufs, count);
}

uint16_t inlined_rte_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

struct rte_mbuf *inlined_rte_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int inlined_rte_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void inlined_rte_pktmbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

/* Frames that go back to their pool together. */
enum { FREED_TOGETHER = 64 };

void inlined_rte_pktmbuf_free_bulk(struct rte_mbuf **mbufs, unsigned int count)
{
	void *freed[FREED_TOGETHER];
	struct rte_mempool *pool = NULL;
	unsigned int held = 0;

	for (unsigned int index = 0; index < count; index++) {
		struct rte_mbuf *mbuf = mbufs[index];

		/* A frame of one buffer has no next, so a pool finds it as rte_mbuf_raw_free leaves it. */
		if (unlikely(mbuf->nb_segs != 1 || !RTE_MBUF_DIRECT(mbuf) || rte_mbuf_refcnt_read(mbuf) != 1)) {
			rte_pktmbuf_free(mbuf);
			continue;
		}
		if (unlikely(held == FREED_TOGETHER || (held > 0 && mbuf->pool != pool))) {
			rte_mempool_put_bulk(pool, freed, held);
			held = 0;
		}
		pool = mbuf->pool;
		freed[held++] = mbuf;
	}
	if (held > 0)
		rte_mempool_put_bulk(pool, freed, held);
}

void inlined_rte_pktmbuf_attach_extbuf(struct rte_mbuf *mbuf, void *start, rte_iova_t iova, uint16_t octets,
				       struct rte_mbuf_ext_shared_info *shared)
{
	rte_pktmbuf_attach_extbuf(mbuf, start, iova, octets, shared);
}

void inlined_rte_mempool_cache_flush(struct rte_mempool *pool)
{
	rte_mempool_cache_flush(NULL, pool);
}

unsigned int inlined_rte_mempool_common_count(const struct rte_mempool *pool)
{
	return rte_mempool_get_ops(pool->ops_index)->get_count(pool);
}
