/* Binds a server that listens on every address at its pod's own one instead.
 *
 * The pods of the lab share the machine's network, and Apache's 4.9 has no bind address: two
 * brokers of one port would exclude each other. LAB_POD_ADDRESS names the address.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef int (*bind_function)(int, const struct sockaddr *, socklen_t);

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    bind_function next = (bind_function)dlsym(RTLD_NEXT, "bind");
    const char *text = getenv("LAB_POD_ADDRESS");
    struct in_addr own;

    if (text == NULL || inet_pton(AF_INET, text, &own) != 1)
        return next(fd, address, length);
    if (address->sa_family == AF_INET) {
        struct sockaddr_in four = *(const struct sockaddr_in *)address;
        if (four.sin_addr.s_addr == htonl(INADDR_ANY) && four.sin_port != 0)
            four.sin_addr = own;
        return next(fd, (struct sockaddr *)&four, sizeof four);
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 six = *(const struct sockaddr_in6 *)address;
        if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) && six.sin6_port != 0) {
            memset(&six.sin6_addr.s6_addr[10], 0xff, 2); /* ::ffff:a.b.c.d */
            memcpy(&six.sin6_addr.s6_addr[12], &own, 4);
        }
        return next(fd, (struct sockaddr *)&six, sizeof six);
    }
    return next(fd, address, length);
}
