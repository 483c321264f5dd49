/* What the bindings are made from: DPDK's headers, and functions and numbers that the headers offer only
 * inline. */

#ifndef INLINED_H
#define INLINED_H

#include <stdint.h>

#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>

int inlined_rte_errno(void);
/* LCORE_ID_ANY on threads that EAL does not know. */
unsigned int inlined_rte_lcore_id(void);

uint16_t inlined_rte_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t inlined_rte_eth_tx_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t inlined_rte_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);

struct rte_mbuf *inlined_rte_pktmbuf_alloc(struct rte_mempool *pool);
int inlined_rte_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count);
void inlined_rte_pktmbuf_free(struct rte_mbuf *mbuf);
/* rte_pktmbuf_free_bulk, but a frame in one buffer of its own is freed without a look at the second cache
 * line of its mbuf: where another core has sent the frame, that line is in that core's cache, and stays. */
void inlined_rte_pktmbuf_free_bulk(struct rte_mbuf **mbufs, unsigned int count);
void inlined_rte_pktmbuf_attach_extbuf(struct rte_mbuf *mbuf, void *start, rte_iova_t iova, uint16_t octets,
				       struct rte_mbuf_ext_shared_info *shared);

/* Gives the objects that the calling thread's cache holds back to the pool. */
void inlined_rte_mempool_cache_flush(struct rte_mempool *pool);
/* Objects in the pool proper, caches not counted. */
unsigned int inlined_rte_mempool_common_count(const struct rte_mempool *pool);

/* Numbers that bindgen does not find by itself: it evaluates no casts in macros, and gives unnamed enums no
 * name. */
#define CONSTANT(name) static const uint64_t constant_##name = name
CONSTANT(LCORE_ID_ANY);
CONSTANT(RTE_BAD_IOVA);
CONSTANT(RTE_MBUF_F_RX_RSS_HASH);
CONSTANT(RTE_MBUF_F_RX_IP_CKSUM_MASK);
CONSTANT(RTE_MBUF_F_RX_IP_CKSUM_BAD);
CONSTANT(RTE_MBUF_F_RX_IP_CKSUM_NONE);
CONSTANT(RTE_MBUF_F_RX_L4_CKSUM_MASK);
CONSTANT(RTE_MBUF_F_RX_L4_CKSUM_BAD);
CONSTANT(RTE_MBUF_F_RX_L4_CKSUM_NONE);
CONSTANT(RTE_MBUF_F_TX_TCP_SEG);
CONSTANT(RTE_MBUF_F_TX_TCP_CKSUM);
CONSTANT(RTE_MBUF_F_TX_L4_MASK);
CONSTANT(RTE_MBUF_F_TX_IP_CKSUM);
CONSTANT(RTE_MBUF_F_TX_IPV4);
CONSTANT(RTE_MBUF_F_TX_IPV6);
CONSTANT(RTE_MBUF_L2_LEN_OFS);
CONSTANT(RTE_MBUF_L3_LEN_OFS);
CONSTANT(RTE_MBUF_L4_LEN_OFS);
CONSTANT(RTE_MBUF_TSO_SEGSZ_OFS);
CONSTANT(RTE_MBUF_F_EXTERNAL);
CONSTANT(RTE_MBUF_F_INDIRECT);
CONSTANT(RTE_ETH_RX_OFFLOAD_IPV4_CKSUM);
CONSTANT(RTE_ETH_RX_OFFLOAD_TCP_CKSUM);
CONSTANT(RTE_ETH_RX_OFFLOAD_SCATTER);
CONSTANT(RTE_ETH_RX_OFFLOAD_TCP_LRO);
CONSTANT(RTE_ETH_RX_OFFLOAD_RSS_HASH);
CONSTANT(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM);
CONSTANT(RTE_ETH_TX_OFFLOAD_TCP_CKSUM);
CONSTANT(RTE_ETH_TX_OFFLOAD_TCP_TSO);
CONSTANT(RTE_ETH_TX_OFFLOAD_MULTI_SEGS);
CONSTANT(RTE_ETH_RSS_IPV4);
CONSTANT(RTE_ETH_RSS_NONFRAG_IPV4_TCP);
CONSTANT(RTE_ETH_RSS_IPV6);
CONSTANT(RTE_ETH_RSS_NONFRAG_IPV6_TCP);

#endif
